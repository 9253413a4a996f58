#include "trireme/nn/layers.h"

#include "trireme/ops/elementwise.h"
#include "trireme/ops/matmul.h"
#include "trireme/ops/norm.h"

#include "nn/scaled_linear.h"

namespace trireme::nn {
namespace {

Parameter& add_outside_vector(const LayerContext& context, const std::string& name,
                              std::int64_t extent, float value) {
  return context.parameters.add({.name = context.child(name).name,
                                 .placement = Placement::whole({extent}),
                                 .initial = Initializer::constant(value),
                                 .holders = outside_holders(context.parallel),
                                 .decay = false});
}

Tensor input_gradient(ops::Context& ctx, const Tensor& dy, const Tensor& weight) {
  const Tensor dx = ctx.allocate({dy.shape()[0], weight.shape()[1]}, dy.dtype());
  ops::linear_backward_input(ctx, dy, weight, dx);
  return dx;
}

// Records y = a + b. Both inputs get y's gradient.
Value record_sum(Tape& tape, const Value& a, const Value& b, const Tensor& y) {
  return tape.record(y, {a, b}, [a = a.slot(), b = b.slot()](Tape& t, const Tensor& dy) {
    t.add_gradient(a, dy);
    t.add_gradient(b, dy);
  });
}

// (columns), fp32, for sums that are added to it.
Tensor zero_sums(ops::Context& ctx, std::int64_t columns) {
  const Tensor sums = ctx.allocate({columns}, DType::kF32);
  ops::fill(ctx, sums, 0.0f);
  return sums;
}

// Declares that gelu(pre) makes y again.
Value remade_gelu(Tape& tape, const Tensor& pre, const Value& y) {
  return tape.can_remake(y, [pre](ops::Context& c) {
    const Tensor again = c.allocate(pre.shape(), pre.dtype());
    ops::gelu(c, pre, again);
    return again;
  });
}

}  // namespace

Value add(Tape& tape, const Value& a, const Value& b) {
  ops::Context& ctx = tape.context();
  const Tensor y = ctx.allocate(a.shape(), a.tensor().dtype());
  ops::add(ctx, a.tensor(), b.tensor(), y);
  return record_sum(tape, a, b, y);
}

Value scaled(Tape& tape, const Value& x, float factor) {
  if (factor == 1.0f) return x;
  const auto times = [factor](ops::Context& ctx, const Tensor& of) {
    const Tensor y = ctx.allocate(of.shape(), of.dtype());
    ops::cast(ctx, of, y);
    ops::scale(ctx, y, factor);
    return y;
  };
  return tape.record(times(tape.context(), x.tensor()), {x},
                     [x = x.slot(), times](Tape& t, const Tensor& dy) {
                       t.add_gradient(x, times(t.context(), dy));
                     });
}

Value gelu_erf(Tape& tape, const Value& x) {
  ops::Context& ctx = tape.context();
  const auto make = [x = x.tensor()](ops::Context& c) {
    const Tensor y = c.allocate(x.shape(), x.dtype());
    ops::gelu_erf(c, x, y);
    return y;
  };
  const Value y = tape.record(make(ctx), {x}, [x](Tape& t, const Tensor& dy) {
    const Tensor dx = t.writable(dy);
    ops::gelu_erf_backward(t.context(), x.tensor(), dy, dx);
    t.add_gradient(x.slot(), dx);
  });
  return tape.can_remake(y, make);
}

Value dropout(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch, const Value& x,
              float rate, std::uint32_t layer) {
  if (!batch.training || rate == 0.0f) return x;
  const ops::DropoutPlace place{layer, parallel.first_outside_row(batch.batch * batch.length),
                                batch.length, batch.samples};
  ops::Context& ctx = tape.context();
  const Tensor y = ctx.allocate(x.shape(), x.tensor().dtype());
  ops::dropout(ctx, x.tensor(), rate, place, y);
  return tape.record(y, {x}, [x = x.slot(), rate, place](Tape& t, const Tensor& dy) {
    const Tensor dx = t.context().allocate(dy.shape(), dy.dtype());
    ops::dropout(t.context(), dy, rate, place, dx);
    t.add_gradient(x, dx);
  });
}

Norm::Norm(const LayerContext& context, NormKind kind, std::int64_t width, bool bias, float epsilon,
           bool plus_one)
    : kind_(kind),
      epsilon_(epsilon),
      plus_(plus_one ? 1.0f : 0.0f),
      weight_(&add_outside_vector(context, "weight", width, 1.0f - plus_)) {
  if (kind == NormKind::kLayer && bias) bias_ = &add_outside_vector(context, "bias", width, 0.0f);
}

Value Norm::forward(Tape& tape, const Value& x) const {
  ops::Context& ctx = tape.context();
  const Tensor y = ctx.allocate(x.shape(), x.tensor().dtype());  // (rows, C)
  const Statistics rows = allocate_statistics(ctx, x.shape()[0]);
  normalize(ctx, x.tensor(), y, rows);
  return record(tape, x, y, rows);
}

Norm::Added Norm::forward_added(Tape& tape, const Value& x, const Value& branch) const {
  ops::Context& ctx = tape.context();
  const Tensor sum = ctx.allocate(x.shape(), x.tensor().dtype());  // (rows, C)
  const Tensor y = ctx.allocate(x.shape(), x.tensor().dtype());
  const Statistics rows = allocate_statistics(ctx, x.shape()[0]);
  if (kind_ == NormKind::kLayer) {
    ops::add_layer_norm(ctx, x.tensor(), branch.tensor(), weight_->weight(), bias(), epsilon_, sum,
                        y, rows.mean, rows.rstd);
  } else {
    ops::add_rms_norm(ctx, x.tensor(), branch.tensor(), factor(), epsilon_, sum, y, rows.rstd);
  }
  const Value added = record_sum(tape, x, branch, sum);
  return {added, record(tape, added, y, rows, branch.sums())};
}

Norm::Statistics Norm::allocate_statistics(ops::Context& ctx, std::int64_t rows) const {
  return {kind_ == NormKind::kLayer ? ctx.allocate({rows}, DType::kF32) : Tensor(),
          ctx.allocate({rows}, DType::kF32)};
}

void Norm::normalize(ops::Context& ctx, const Tensor& x, const Tensor& y,
                     const Statistics& rows) const {
  if (kind_ == NormKind::kLayer) {
    ops::layer_norm(ctx, x, weight_->weight(), bias(), epsilon_, y, rows.mean, rows.rstd);
  } else {
    ops::rms_norm(ctx, x, factor(), epsilon_, y, rows.rstd);
  }
}

Value Norm::record(Tape& tape, const Value& x, const Tensor& y, const Statistics& rows,
                   const std::shared_ptr<ColumnSums>& sums) const {
  std::vector<const Parameter*> parameters = {weight_};
  if (bias_) parameters.push_back(bias_);
  const Value normed = tape.record(
      y, {x}, [x, rows, this](Tape& t, const Tensor& dy) { backward_input(t, x, rows, dy); },
      parameters,
      [x, rows, this](Tape& t, const Tensor& dy) {
        if (kind_ == NormKind::kLayer) {
          ops::layer_norm_backward_weight(t.context(), dy, x.tensor(), rows.mean, rows.rstd,
                                          weight_->gradient(), bias_gradient());
        } else {
          ops::rms_norm_backward_weight(t.context(), dy, x.tensor(), rows.rstd,
                                        weight_->gradient());
        }
      },
      [x, rows, sums, this](Tape& t, const Tensor& dy) { backward(t, x, rows, dy, sums.get()); });
  return tape.can_remake(normed, [x = x.tensor(), dtype = y.dtype(), rows, this](ops::Context& c) {
    const Tensor again = c.allocate(x.shape(), dtype);
    normalize(c, x, again, rows);  // and the same statistics
    return again;
  });
}

// x's gradient from the residual path is there already. It is added in the same pass, in place
// unless other values share it.
Norm::InputGradient Norm::begin_backward(Tape& tape, const Value& x, const Tensor& dy) {
  const Tensor rest = tape.take_gradient(x.slot());
  const bool in_place = rest.defined() && !rest.shared();
  return {rest, in_place ? rest : tape.context().allocate(dy.shape(), dy.dtype())};
}

void Norm::backward_input(Tape& tape, const Value& x, const Statistics& rows,
                          const Tensor& dy) const {
  const auto& [rest, dx] = begin_backward(tape, x, dy);
  if (kind_ == NormKind::kLayer) {
    ops::layer_norm_backward_input(tape.context(), dy, x.tensor(), weight_->weight(), rows.mean,
                                   rows.rstd, rest, dx);
  } else {
    ops::rms_norm_backward_input(tape.context(), dy, x.tensor(), factor(), rows.rstd, rest, dx);
  }
  tape.add_gradient(x.slot(), dx);
}

void Norm::backward(Tape& tape, const Value& x, const Statistics& rows, const Tensor& dy,
                    ColumnSums* sums) const {
  const auto& [rest, dx] = begin_backward(tape, x, dy);
  if (kind_ == NormKind::kLayer) {
    Tensor dx_sums;
    if (sums != nullptr) {
      dx_sums = zero_sums(tape.context(), dx.shape()[1]);
      *sums = {dx, dx_sums};
    }
    ops::layer_norm_backward(tape.context(), dy, x.tensor(), weight_->weight(), rows.mean,
                             rows.rstd, rest, dx, weight_->gradient(), bias_gradient(), dx_sums);
  } else {
    ops::rms_norm_backward(tape.context(), dy, x.tensor(), factor(), rows.rstd, rest, dx,
                           weight_->gradient());
  }
  tape.add_gradient(x.slot(), dx);
}

ColumnParallelLinear::Part ColumnParallelLinear::split_part(const LayerContext& context,
                                                            const std::string& name,
                                                            std::int64_t rows, bool inner) {
  return {name, rows, context.parallel.size(), context.parallel.rank(), {}, inner};
}

ColumnParallelLinear::ColumnParallelLinear(const LayerContext& context,
                                           const std::vector<Part>& parts, std::int64_t in,
                                           bool bias, const LinearInitial& initial)
    : block_scaled_(context.block_scaled) {
  for (const Part& part : parts) {
    weights_.push_back(&context.parameters.add(
        {.name = context.child(part.name).name + ".weight",
         .placement = Placement::split({part.rows, in}, 0, part.parts, part.index),
         .initial = initial.weight,
         .holders = part.holders,
         .inner_matrix = part.inner,
         .overwrites = true,
         .heads = part.heads}));
  }
  context.parameters.keep_together(weights_);
  if (block_scaled_) check_whole_blocks(weights_);
  if (!bias) return;
  for (const Part& part : parts) {
    biases_.push_back(&context.parameters.add(
        {.name = context.child(part.name).name + ".bias",
         .placement = Placement::split({part.rows}, 0, part.parts, part.index),
         .initial = initial.bias,
         .holders = part.holders,
         .decay = false}));
  }
  context.parameters.keep_together(biases_);
}

std::vector<const Parameter*> ColumnParallelLinear::parameters() const {
  std::vector<const Parameter*> all(weights_.begin(), weights_.end());
  all.insert(all.end(), biases_.begin(), biases_.end());
  return all;
}

Value ColumnParallelLinear::forward_scaled(Tape& tape, const Value& x,
                                           Tape::WeightGradient bias_gradient) const {
  return record_scaled_linear(
      tape, x, x,
      {.weights = weights_,
       .bias = side_by_side_weight(biases_),
       .parameters = parameters(),
       .input_gradient = [x = x.slot()](Tape& t, const Tensor& dx) { t.add_gradient(x, dx); },
       .bias_gradient = std::move(bias_gradient)});
}

Value ColumnParallelLinear::forward(Tape& tape, const Value& x) const {
  if (block_scaled_ && tape.training()) {
    return forward_scaled(tape, x, [this](Tape& t, const Tensor& dy) {
      ops::linear_backward_weight(t.context(), dy, Tensor(), Tensor(),
                                  side_by_side_gradient(biases_));
    });
  }
  ops::Context& ctx = tape.context();
  const Tensor weight = side_by_side_weight(weights_);  // (local out, in)
  const Tensor y = ctx.allocate({x.shape()[0], weight.shape()[0]}, x.tensor().dtype());
  ops::linear(ctx, x.tensor(), weight, side_by_side_weight(biases_), y);
  return tape.record(
      y, {x},
      [x = x.slot(), this](Tape& t, const Tensor& dy) {
        t.add_gradient(x, input_gradient(t.context(), dy, side_by_side_weight(weights_)));
      },
      parameters(),
      [x = x.kept(), this](Tape& t, const Tensor& dy) {
        ops::linear_backward_weight(t.context(), dy, x.tensor(t.context()),
                                    side_by_side_gradient(weights_), side_by_side_gradient(biases_),
                                    take_beta(weights_));
      });
}

ColumnParallelLinear::Activated ColumnParallelLinear::forward_gelu(Tape& tape,
                                                                   const Value& x) const {
  ops::Context& ctx = tape.context();
  const bool sums_bias = !biases_.empty() && biases_.front()->trains();
  const auto bias_sums = sums_bias ? std::make_shared<Tensor>() : nullptr;
  const auto add_bias_sums = [bias_sums, this](Tape& t) {
    if (!bias_sums) return;
    const Tensor gradient = side_by_side_gradient(biases_);
    ops::add(t.context(), gradient, *bias_sums, gradient);
  };
  if (block_scaled_ && tape.training()) {
    const Value pre =
        forward_scaled(tape, x, [add_bias_sums](Tape& t, const Tensor&) { add_bias_sums(t); });
    const Tensor y = ctx.allocate(pre.shape(), pre.dtype());
    ops::gelu(ctx, pre.tensor(), y);
    return {pre, remade_gelu(tape, pre.tensor(), tape.input(y, false)), bias_sums};
  }
  const Tensor weight = side_by_side_weight(weights_);  // (local out, in)
  const Tensor pre = ctx.allocate({x.shape()[0], weight.shape()[0]}, x.tensor().dtype());
  const Tensor y = ctx.allocate(pre.shape(), pre.dtype());
  const bool exact =
      ops::linear_gelu(ctx, x.tensor(), weight, side_by_side_weight(biases_), pre, y);
  const Value recorded = tape.record(
      pre, {x},
      [x = x.slot(), this](Tape& t, const Tensor& dpre) {
        t.add_gradient(x, input_gradient(t.context(), dpre, side_by_side_weight(weights_)));
      },
      parameters(),
      [x = x.kept(), add_bias_sums, this](Tape& t, const Tensor& dpre) {
        ops::linear_backward_weight(t.context(), dpre, x.tensor(t.context()),
                                    side_by_side_gradient(weights_), Tensor(), take_beta(weights_));
        add_bias_sums(t);
      });
  const Value active = tape.input(y, false);
  return {recorded, exact ? remade_gelu(tape, pre, active) : active, bias_sums};
}

RowParallelLinear::RowParallelLinear(const LayerContext& context, std::int64_t out, std::int64_t in,
                                     bool bias, float deviation)
    : parallel_(context.parallel),
      weight_(&context.parameters.add(
          {.name = context.child("weight").name,
           .placement = Placement::split({out, in}, 1, parallel_.size(), parallel_.rank()),
           .initial = Initializer::normal(deviation),
           .holders = {},
           .inner_matrix = true,
           .overwrites = true})),
      block_scaled_(context.block_scaled) {
  if (block_scaled_) check_whole_blocks({weight_});
  if (bias) bias_ = &add_outside_vector(context, "bias", out, 0.0f);
}

Value RowParallelLinear::forward(Tape& tape, const Value& x, const Value* addend) const {
  if (block_scaled_ && tape.training()) {
    const auto to_x = [x = x.slot()](Tape& t, const Tensor& dx) { t.add_gradient(x, dx); };
    return forward_scaled(tape, x, x, to_x, addend);
  }
  const auto to_x = [x = x.slot(), this](Tape& t, const Tensor& dy) {
    t.add_gradient(x, input_gradient(t.context(), dy, weight_->weight()));
  };
  return forward(tape, x, x, to_x, addend);
}

Value RowParallelLinear::forward(Tape& tape, const ColumnParallelLinear::Activated& x,
                                 const Value* addend) const {
  const auto begin_sums = [bias_sums = x.bias_sums](Tape& t, std::int64_t columns) {
    if (!bias_sums) return Tensor();
    *bias_sums = zero_sums(t.context(), columns);
    return *bias_sums;
  };
  if (block_scaled_ && tape.training()) {
    const auto to_pre = [pre = x.pre, begin_sums](Tape& t, const Tensor& dx) {
      ops::gelu_backward(t.context(), pre.tensor(), dx, dx);
      const Tensor sums = begin_sums(t, pre.shape()[1]);
      if (sums.defined()) ops::add_column_sums(t.context(), dx, sums);
      t.add_gradient(pre.slot(), dx);
    };
    return forward_scaled(tape, x.y, x.pre, to_pre, addend);
  }
  const auto to_pre = [pre = x.pre, begin_sums, this](Tape& t, const Tensor& dy) {
    const Tensor dpre = t.context().allocate(pre.shape(), dy.dtype());
    const Tensor sums = begin_sums(t, pre.shape()[1]);
    ops::linear_backward_input_gelu(t.context(), dy, weight_->weight(), pre.tensor(), dpre, sums);
    t.add_gradient(pre.slot(), dpre);
  };
  return forward(tape, x.y, x.pre, to_pre, addend);
}

bool RowParallelLinear::adds_within(const ops::Context& ctx) const {
  return parallel_.size() == 1 && ctx.device.kind != DeviceKind::kCpu;
}

const Parameter* RowParallelLinear::bias_within(const ops::Context& ctx) const {
  return adds_within(ctx) ? bias_ : nullptr;
}

Value RowParallelLinear::forward_scaled(Tape& tape, const Value& x, const Value& source,
                                        std::function<void(Tape&, const Tensor& dx)> input_gradient,
                                        const Value* addend) const {
  const Parameter* within = bias_within(tape.context());
  ScaledLinear linear{.weights = {weight_},
                      .bias = within ? within->weight() : Tensor(),
                      .parameters = {weight_},
                      .input_gradient = std::move(input_gradient)};
  const auto sums = within ? place_of_sums(tape) : nullptr;
  if (within) {
    linear.parameters.push_back(within);
    linear.bias_gradient = [sums, this](Tape& t, const Tensor& dy) {
      add_bias_gradient(t, dy, sums.get());
    };
  }
  const Value product = record_scaled_linear(tape, x, source, std::move(linear));
  return finished(tape, product.with_sums(sums), addend);
}

Value RowParallelLinear::forward(Tape& tape, const Value& x, const Value& source,
                                 Tape::InputGradient input_gradient, const Value* addend) const {
  ops::Context& ctx = tape.context();
  const Tensor& weight = weight_->weight();  // (out, local in)
  const Tensor partial = ctx.allocate({x.shape()[0], weight.shape()[0]}, x.dtype());
  const Parameter* within = bias_within(ctx);
  const Tensor bias = within ? within->weight() : Tensor();
  const bool adds = addend != nullptr && adds_within(ctx);
  Values inputs{source};
  if (adds) {
    ops::linear_added(ctx, x.tensor(), weight, bias, addend->tensor(), partial);
    inputs.push_back(*addend);
    input_gradient = [to_source = std::move(input_gradient), to = addend->slot()](
                         Tape& t, const Tensor& dy) {
      to_source(t, dy);
      t.add_gradient(to, dy);
    };
  } else {
    ops::linear(ctx, x.tensor(), weight, bias, partial);
  }
  std::vector<const Parameter*> parameters{weight_};
  if (within) parameters.push_back(within);
  const auto sums = within ? place_of_sums(tape) : nullptr;
  const Value product = tape.record(partial, inputs, std::move(input_gradient), parameters,
                                    [x = x.kept(), within, sums, this](Tape& t, const Tensor& dy) {
                                      ops::linear_backward_weight(
                                          t.context(), dy, x.tensor(t.context()),
                                          weight_->gradient(), Tensor(), weight_->take_beta());
                                      if (within) add_bias_gradient(t, dy, sums.get());
                                    });
  return finished(tape, product.with_sums(sums), adds ? nullptr : addend);
}

Value RowParallelLinear::finished(Tape& tape, const Value& product, const Value* addend) const {
  const Value sum = leave(tape, parallel_, product);
  const Value y = bias_ && !bias_within(tape.context()) ? with_bias(tape, sum) : sum;
  return addend != nullptr ? add(tape, *addend, y) : y;
}

Value RowParallelLinear::with_bias(Tape& tape, const Value& sum) const {
  // In place: nothing else needs the sum without its bias.
  ops::add_bias(tape.context(), sum.tensor(), bias_->weight());
  const auto sums = place_of_sums(tape);
  const Value y = tape.record(
      sum.tensor(), {sum},
      [sum = sum.slot()](Tape& t, const Tensor& dy) { t.add_gradient(sum, dy); }, {bias_},
      [sums, this](Tape& t, const Tensor& dy) { add_bias_gradient(t, dy, sums.get()); });
  return y.with_sums(sums);
}

std::shared_ptr<ColumnSums> RowParallelLinear::place_of_sums(const Tape& tape) const {
  const bool wanted = tape.recording() && bias_->trains();
  if (!wanted || tape.context().device.kind == DeviceKind::kCpu) return nullptr;
  return std::make_shared<ColumnSums>();
}

void RowParallelLinear::add_bias_gradient(Tape& tape, const Tensor& dy,
                                          const ColumnSums* made) const {
  const Tensor gradient = bias_->gradient();
  if (gradient.defined() && made != nullptr && made->of.raw() == dy.raw()) {
    ops::add(tape.context(), gradient, made->sums, gradient);
  } else if (gradient.defined()) {
    ops::add_column_sums(tape.context(), dy, gradient);
  }
}

Mlp::Mlp(const LayerContext& context, ActivationKind activation, std::int64_t width,
         std::int64_t hidden, bool bias, float deviation, float output_deviation)
    : activation_(activation), parallel_(context.parallel) {
  std::vector<ColumnParallelLinear::Part> parts;
  if (is_gated(activation)) {
    parts.push_back(ColumnParallelLinear::split_part(context, "gate", hidden));
  }
  parts.push_back(ColumnParallelLinear::split_part(context, "up", hidden));
  up_ = std::make_unique<ColumnParallelLinear>(context, parts, width, bias, deviation);
  down_ = std::make_unique<RowParallelLinear>(context.child("down"), width, hidden, bias,
                                              output_deviation);
}

Value Mlp::forward(Tape& tape, const Value& x, const Value* addend) const {
  const Value inside = enter(tape, parallel_, x);  // (rows, C)
  if (activation_ == ActivationKind::kGelu) {
    return down_->forward(tape, up_->forward_gelu(tape, inside), addend);
  }
  if (activation_ == ActivationKind::kGeluErf) {
    return down_->forward(tape, gelu_erf(tape, up_->forward(tape, inside)), addend);
  }
  ops::Context& ctx = tape.context();
  const bool gelu = activation_ == ActivationKind::kGeglu;
  const auto act = gelu ? &ops::geglu : &ops::swiglu;
  const auto act_backward = gelu ? &ops::geglu_backward : &ops::swiglu_backward;
  const Value gate_up = up_->forward(tape, inside);  // (rows, 2 x local hidden)
  const Tensor y =
      ctx.allocate({gate_up.shape()[0], gate_up.shape()[1] / 2}, gate_up.tensor().dtype());
  act(ctx, gate_up.tensor(), y);
  const Value active =
      tape.record(y, {gate_up}, [gate_up, act_backward](Tape& t, const Tensor& dy) {
        // In place: this is the last that reads gate_up.
        const Tensor dgate_up = t.writable(gate_up.tensor());
        act_backward(t.context(), gate_up.tensor(), dy, dgate_up);
        t.add_gradient(gate_up.slot(), dgate_up);
      });
  const auto remake = [gate_up = gate_up.tensor(), shape = y.shape(), act](ops::Context& c) {
    const Tensor again = c.allocate(shape, gate_up.dtype());
    act(c, gate_up, again);
    return again;
  };
  return down_->forward(tape, tape.can_remake(active, remake), addend);
}

}  // namespace trireme::nn

#include "trireme/nn/pictures.h"

#include <cmath>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/normed_depthwise.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/tensor/copy.h"

namespace trireme::nn {
namespace {

// All pixels as rows (rows, C).
Tensor pixel_rows(const Tensor& x) {
  return x.defined() ? x.reshape({x.shape().rows(), x.shape()[-1]}) : x;
}

Parameter& add_channels(const LayerContext& context, const std::string& name, std::int64_t channels,
                        float value) {
  return context.parameters.add({.name = context.child(name).name,
                                 .placement = Placement::whole({channels}),
                                 .initial = Initializer::constant(value),
                                 .holders = outside_holders(context.parallel),
                                 .decay = false});
}

}  // namespace

float Convolution::deviation_of(std::int64_t kernel, std::int64_t out, std::int64_t groups) {
  return static_cast<float>(
      std::sqrt(2.0 * static_cast<double>(groups) / static_cast<double>(kernel * kernel * out)));
}

Convolution::Convolution(const LayerContext& context, const Options& options)
    : options_(options),
      weight_(&context.parameters.add(
          {.name = context.child("weight").name,
           .placement = Placement::whole(
               {options.out, options.kernel, options.kernel, options.in / options.groups}),
           .initial = Initializer::normal(options.deviation),
           .holders = outside_holders(context.parallel),
           .inner_matrix = options.inner && options.groups == 1})) {
  if (options.bias) bias_ = &add_channels(context, "bias", options.out, 0.0f);
}

ops::ConvolutionShape Convolution::shape_of(const Value& x) const {
  return {x.shape()[0],    x.shape()[1],    x.shape()[2],    options_.in,      options_.out,
          options_.kernel, options_.kernel, options_.stride, options_.padding, options_.groups};
}

Value Convolution::forward(Tape& tape, const Value& x) const {
  ops::Context& ctx = tape.context();
  const ops::ConvolutionShape shape = shape_of(x);
  const Tensor y = ctx.allocate(shape.output(), x.dtype());
  ops::convolution(ctx, shape, x.tensor(), weight_->weight(), bias_ ? bias_->weight() : Tensor(),
                   y);
  return record(tape, x, y);
}

Value Convolution::record(Tape& tape, const Value& x, const Tensor& y) const {
  const ops::ConvolutionShape shape = shape_of(x);
  std::vector<const Parameter*> parameters = {weight_};
  if (bias_) parameters.push_back(bias_);
  Tape::InputGradient both;
  if (!bias_ && ops::convolution_backward_is_one_pass(tape.context(), shape)) {
    both = [slot = x.slot(), x = x.kept(), shape, this](Tape& t, const Tensor& dy) {
      const Tensor dx = t.context().allocate(shape.input(), dy.dtype());
      ops::convolution_backward(t.context(), shape, dy, x.tensor(t.context()), weight_->weight(),
                                dx, weight_->gradient());
      t.add_gradient(slot, dx);
    };
  }
  return tape.record(
      y, {x},
      [x = x.slot(), shape, this](Tape& t, const Tensor& dy) {
        const Tensor dx = t.context().allocate(shape.input(), dy.dtype());
        ops::convolution_backward_input(t.context(), shape, dy, weight_->weight(), dx);
        t.add_gradient(x, dx);
      },
      parameters,
      [x = x.kept(), shape, this](Tape& t, const Tensor& dy) {
        ops::convolution_backward_weight(t.context(), shape, dy, x.tensor(t.context()),
                                         weight_->gradient(), bias_ ? bias_->gradient() : Tensor());
      },
      both);
}

BatchNorm::BatchNorm(const LayerContext& context, StateSet& states, const Options& options)
    : options_(options),
      weight_(&add_channels(context, "weight", options.channels, options.initial_weight)),
      bias_(&add_channels(context, "bias", options.channels, 0.0f)),
      running_(&states.add({.name = context.child("running").name,
                            .shape = {2, options.channels},
                            .initial = {0.0f, 1.0f},
                            .momentum = options.momentum,
                            .together = sharing()})) {}

Value BatchNorm::forward(Tape& tape, const MicroBatch& batch, const Value& x) const {
  return normalize(tape, batch, x, Value(), Tensor());
}

Value BatchNorm::forward(Tape& tape, const MicroBatch& batch, const Value& x,
                         const Value& residual) const {
  return normalize(tape, batch, x, residual, Tensor());
}

Value BatchNorm::forward(Tape& tape, const MicroBatch& batch, const Convolution& convolution,
                         const Value& x, const BatchNorm* before) const {
  ops::Context& ctx = tape.context();
  const ops::ConvolutionShape shape = convolution.shape_of(x);
  if (convolution.bias_ || !ops::depthwise_takes_norms(ctx, shape)) {
    const Value in = before ? before->forward(tape, batch, x) : x;
    return forward(tape, batch, convolution.forward(tape, in));
  }
  ops::BatchNorm norm_before;
  if (before) norm_before = before->norm(before->moments_for(tape, batch, x, Tensor()));
  const Tensor y = ctx.allocate(shape.output(), x.dtype());
  const Tensor own = batch.training ? ctx.allocate({2, options_.channels}, DType::kF32) : Tensor();
  ops::normed_depthwise(ctx, shape, norm_before, x.tensor(), convolution.weight_->weight(), y, own);
  if (!before) return normalize(tape, batch, convolution.record(tape, x, y), Value(), own);
  const Pass pass{x, false, GradientSlot(), norm_before.moments, Tensor(), batch.training};
  return normalize(tape, batch, before->record_convolved(tape, pass, convolution, y), Value(), own);
}

Value BatchNorm::record_convolved(Tape& tape, const Pass& pass, const Convolution& convolution,
                                  const Tensor& y) const {
  // The sums serve both gradients.
  const auto made = std::make_shared<Tensor>();
  // What weight gradients read that come later, when there may be no weights.
  const auto later = std::make_shared<ops::BatchNorm>();
  // Returns the gradient of what this norm made, and makes the sums. dweight may be undefined.
  const auto backward = [pass, made, weight = convolution.weight_,
                         shape = convolution.shape_of(pass.x),
                         this](Tape& t, const Tensor& dy, const Tensor& dweight) {
    ops::Context& ctx = t.context();
    const Tensor dnormed = ctx.allocate(shape.input(), dy.dtype());
    *made = ctx.allocate({2, options_.channels}, DType::kF32);
    ops::normed_depthwise_backward(ctx, shape, norm(pass.moments), dy, pass.x.tensor(),
                                   weight->weight(), dnormed, *made, dweight);
    return dnormed;
  };
  return tape.record(
      y, {pass.x},
      [pass, made, later, backward, weight = convolution.weight_, this](Tape& t, const Tensor& dy) {
        const Tensor dnormed = backward(t, dy, Tensor());
        backward_input(t, pass, *made, dnormed);
        if (!weight->trains()) return;
        *later = norm(pass.moments);
        for (Tensor* tensor : {&later->weight, &later->bias}) {
          const Tensor copy = t.context().allocate(tensor->shape(), tensor->dtype());
          ops::cast(t.context(), *tensor, copy);
          *tensor = copy;
        }
      },
      {weight_, bias_, convolution.weight_},
      [pass, made, later, backward, weight = convolution.weight_,
       shape = convolution.shape_of(pass.x), this](Tape& t, const Tensor& dy) {
        if (weight->trains()) {
          ops::normed_depthwise_backward(
              t.context(), shape, later->moments.defined() ? *later : norm(pass.moments), dy,
              pass.x.tensor(), Tensor(), Tensor(), Tensor(), weight->gradient());
        }
        if (!weight_->trains() && !bias_->trains()) return;
        if (!made->defined()) backward(t, dy, Tensor());
        add_weight_gradients(t, *made);
      },
      [pass, made, backward, weight = convolution.weight_, this](Tape& t, const Tensor& dy) {
        const Tensor dnormed = backward(t, dy, weight->trains() ? weight->gradient() : Tensor());
        backward_input(t, pass, *made, dnormed);
        add_weight_gradients(t, *made);
      });
}

ops::BatchNorm BatchNorm::norm(const Tensor& moments) const {
  return {moments, weight_->weight(), bias_->weight(), options_.epsilon, options_.clamp};
}

void BatchNorm::propose(ops::Context& ctx, const MicroBatch& batch, const Tensor& moments,
                        std::int64_t rows) const {
  const auto n = static_cast<float>(rows);
  running_->propose(ctx, batch.place, 0, moments.rows(0, 1));
  running_->propose(ctx, batch.place, 1, moments.rows(1, 2), rows > 1 ? n / (n - 1.0f) : 1.0f);
}

Tensor BatchNorm::shared_moments(ops::Context& ctx, const Tensor& own) const {
  if (sharing() == 1) return own;
  // Moments are merged, so no digits cancel as in a sum of squares. The communicator is the norms'
  // own, so they wait for no reduction of gradients.
  const Tensor parts = ctx.allocate({sharing(), 2, options_.channels}, DType::kF32);
  options_.replicas
      ->all_gather(ctx.stream, own.reshape({own.elements()}), parts.reshape({parts.elements()}))
      .wait_on(ctx.stream);
  ops::merge_batch_moments(ctx, parts, own);
  return own;
}

Tensor BatchNorm::moments_for(Tape& tape, const MicroBatch& batch, const Value& x,
                              const Tensor& own) const {
  if (!batch.training) return running_->value();
  ops::Context& ctx = tape.context();
  const Tensor rows = pixel_rows(x.tensor());
  Tensor moments = own;
  if (!own.defined()) {
    moments = ctx.allocate({2, options_.channels}, DType::kF32);
    ops::batch_moments(ctx, rows, moments);
  }
  moments = shared_moments(ctx, moments);
  // Only one of the forwards of a micro-batch records.
  if (tape.recording()) propose(ctx, batch, moments, rows.shape()[0] * sharing());
  return moments;
}

Value BatchNorm::normalize(Tape& tape, const MicroBatch& batch, const Value& x,
                           const Value& residual, const Tensor& own) const {
  ops::Context& ctx = tape.context();
  const Tensor in = pixel_rows(x.tensor());
  const Tensor moments = moments_for(tape, batch, x, own);
  const Tensor y = ctx.allocate(x.shape(), x.dtype());
  ops::batch_norm(ctx, norm(moments), in, pixel_rows(residual.tensor()), pixel_rows(y));
  const bool needs_y = residual.tensor().defined() && options_.clamp.cuts();
  const Pass pass{x,       residual.needs_gradient(), residual.slot(),
                  moments, needs_y ? y : Tensor(),    batch.training};
  // The sums serve both gradients.
  const auto made = std::make_shared<Tensor>();
  Value normed = tape.record(
      y, {x, residual},
      [pass, made, this](Tape& t, const Tensor& dy) {
        *made = sums(t.context(), pass, dy);
        backward_input(t, pass, *made, dy);
      },
      {weight_, bias_},
      [pass, made, this](Tape& t, const Tensor& dy) {
        if (!made->defined()) *made = sums(t.context(), pass, dy);
        add_weight_gradients(t, *made);
      });
  if (residual.tensor().defined()) return normed;
  return tape.can_remake(normed, [pass, this](ops::Context& c) {
    const Tensor again = c.allocate(pass.x.shape(), pass.x.dtype());
    ops::batch_norm(c, norm(pass.moments), pixel_rows(pass.x.tensor()), Tensor(),
                    pixel_rows(again));
    return again;
  });
}

Tensor BatchNorm::sums(ops::Context& ctx, const Pass& pass, const Tensor& dy) const {
  const Tensor both = ctx.allocate({2, options_.channels}, DType::kF32);
  ops::batch_norm_backward_sums(ctx, norm(pass.moments), pixel_rows(dy),
                                pixel_rows(pass.x.tensor()), pixel_rows(pass.y), both);
  return both;
}

void BatchNorm::add_weight_gradients(Tape& tape, const Tensor& sums) const {
  const auto add = [&](const Parameter& parameter, std::int64_t row) {
    if (!parameter.trains()) return;
    const Tensor sum = sums.rows(row, row + 1).reshape({options_.channels});
    ops::add(tape.context(), parameter.gradient(), sum, parameter.gradient());
  };
  add(*bias_, 0);
  add(*weight_, 1);
}

void BatchNorm::backward_input(Tape& tape, const Pass& pass, const Tensor& sums,
                               const Tensor& dy) const {
  ops::Context& ctx = tape.context();
  const bool cuts = options_.clamp.cuts();
  const Tensor dresidual = pass.adds && cuts ? ctx.allocate(dy.shape(), dy.dtype()) : Tensor();
  // The sums are all that the weights' gradients need, so dx may take the place of dy.
  const bool in_place = !dy.shared() && !(pass.adds && !cuts);
  const Tensor dx = in_place ? dy : ctx.allocate(dy.shape(), dy.dtype());
  Tensor through = sums;
  if (!pass.of_batch) {  // running moments do not depend on x
    through = ctx.allocate(sums.shape(), DType::kF32);
    ops::fill(ctx, through, 0.0f);
  } else if (sharing() > 1) {  // the weights' gradients are of this replica's rows
    through = ctx.allocate(sums.shape(), DType::kF32);
    copy(sums, through, ctx.stream);
    options_.replicas->all_reduce(ctx.stream, through, ReduceOp::kSum).wait_on(ctx.stream);
  }
  const Tensor x = pixel_rows(pass.x.tensor());
  ops::batch_norm_backward(ctx, norm(pass.moments), pixel_rows(dy), x, pixel_rows(pass.y), through,
                           x.shape()[0] * sharing(), pixel_rows(dresidual), pixel_rows(dx));
  if (pass.adds) tape.add_gradient(pass.residual, cuts ? dresidual : dy);
  tape.add_gradient(pass.x.slot(), dx);
}

Value clamp(Tape& tape, const Value& x, const ops::Clamp& range) {
  ops::Context& ctx = tape.context();
  const Tensor y = ctx.allocate(x.shape(), x.dtype());
  ops::clamp(ctx, x.tensor(), range, y);
  return tape.record(y, {x}, [x = x.slot(), y, range](Tape& t, const Tensor& dy) {
    const Tensor dx = t.writable(dy);
    ops::clamp_backward(t.context(), y, dy, range, dx);
    t.add_gradient(x, dx);
  });
}

Value max_pooling(Tape& tape, const Value& x, std::int64_t kernel, std::int64_t stride,
                  std::int64_t padding) {
  ops::Context& ctx = tape.context();
  const ops::PoolingShape shape{x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3],
                                kernel,       kernel,       stride,       padding};
  const Tensor y = ctx.allocate(shape.output(), x.dtype());
  const Tensor which = ctx.allocate(shape.output(), DType::kI32);
  ops::max_pooling(ctx, shape, x.tensor(), y, which);
  return tape.record(y, {x}, [x = x.slot(), shape, which](Tape& t, const Tensor& dy) {
    const Tensor dx = t.context().allocate(shape.input(), dy.dtype());
    ops::max_pooling_backward(t.context(), shape, dy, which, dx);
    t.add_gradient(x, dx);
  });
}

Value global_average_pooling(Tape& tape, const Value& x) {
  ops::Context& ctx = tape.context();
  const auto shape =
      ops::PoolingShape::global(x.shape()[0], x.shape()[1], x.shape()[2], x.shape()[3]);
  const Tensor y = ctx.allocate({shape.batch, shape.channels}, x.dtype());
  ops::average_pooling(ctx, shape, x.tensor(), y.reshape(shape.output()));
  return tape.record(y, {x}, [x = x.slot(), shape](Tape& t, const Tensor& dy) {
    const Tensor dx = t.context().allocate(shape.input(), dy.dtype());
    ops::average_pooling_backward(t.context(), shape, dy.reshape(shape.output()), dx);
    t.add_gradient(x, dx);
  });
}

Value pixels_of(Tape& tape, const MicroBatch& batch, DType compute) {
  const Tensor pixels = batch.field(kPixels);
  if (compute == pixels.dtype()) return tape.input(pixels, false);
  const Tensor cast = tape.context().allocate(pixels.shape(), compute);
  ops::cast(tape.context(), pixels, cast);
  return tape.input(cast, false);
}

Values classify(Tape& tape, const MicroBatch& batch, const Value& logits, float smoothing) {
  if (batch.field(kTargets).defined()) {
    classification_loss(tape, batch, logits, batch.training ? smoothing : 0.0f);
    return {};
  }
  const Tensor whole = tape.context().allocate(logits.shape(), DType::kF32);
  ops::cast(tape.context(), logits.tensor(), whole);
  return {tape.input(whole, false)};
}

void classification_loss(Tape& tape, const MicroBatch& batch, const Value& logits,
                         float smoothing) {
  const auto compute = [targets = batch.field(kTargets), sum = batch.loss_sum,
                        correct = batch.correct, x = logits.tensor(),
                        smoothing](ops::Context& ctx, const Tensor& dlogits) {
    if (correct.defined()) ops::count_correct(ctx, x, targets, correct);
    ops::classification_loss(ctx, x, targets, smoothing, sum, dlogits);
  };
  if (!tape.recording()) return compute(tape.context(), Tensor());
  tape.record_loss([compute, slot = logits.slot(), shape = logits.shape(), dtype = logits.dtype()](
                       Tape& t, const Tensor&) {
    const Tensor dlogits = t.context().allocate(shape, dtype);
    compute(t.context(), dlogits);
    t.add_gradient(slot, dlogits);
  });
}

}  // namespace trireme::nn

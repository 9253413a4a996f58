#include "models/transformer.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "models/keys.h"

namespace trireme::models {
namespace {

// Whether norms stand behind attention and MLP, before their sums.
bool norms_branches(BlockLayout layout) {
  return layout == BlockLayout::kAfter || layout == BlockLayout::kBoth;
}

nn::Attention::Options attention_options(const TransformerSizes& sizes, int layer) {
  return {.width = sizes.width,
          .heads = sizes.heads,
          .kv_heads = sizes.kv_heads,
          .head_size = sizes.head_size(),
          .biases = sizes.biases,
          .rotations = sizes.rotations,
          .norm = sizes.query_key_norm,
          .norm_epsilon = sizes.norm_epsilon,
          .norm_plus_one = sizes.norm_plus_one,
          .scale = sizes.attention_scale,
          .cap = sizes.attention_cap,
          .window = sizes.window,
          .deviation = sizes.deviation,
          .output_deviation = sizes.output_deviation,
          .layer = layer,
          .causal = sizes.causal};
}

}  // namespace

using nn::MicroBatch;
using nn::Tape;
using nn::Value;
using nn::Values;

nn::TensorParallel tensor_parallel(const nn::BuildContext& build) {
  return {&build.grid.comm(Axis::kTensor), build.sequence_parallel};
}

nn::Parameter& vocabulary_table(nn::ParameterSet& parameters, nn::BuildContext& build,
                                const VocabularyTable& table, const char* name) {
  nn::ParameterSpec spec = nn::vocabulary_parameter(
      table.tied ? kEmbeddingName : name, tensor_parallel(build), table.vocabulary, table.width,
      table.deviation, build.vocabulary_multiple);
  return table.tied ? build.share(parameters, std::move(spec)) : parameters.add(std::move(spec));
}

nn::MicroBatch with_length(const nn::MicroBatch& batch, std::int64_t length) {
  nn::MicroBatch result = batch;
  result.length = length;
  return result;
}

TransformerBlock::TransformerBlock(const TransformerSizes& sizes, nn::BuildContext& build,
                                   int layer)
    : TransformerBlock(sizes, build, layer,
                       {parameters_, tensor_parallel(build), fmt::format("blocks.{}", layer),
                        build.block_scaled}) {}

TransformerBlock::TransformerBlock(const TransformerSizes& sizes, nn::BuildContext& build,
                                   int layer, const nn::LayerContext& context)
    : sizes_(sizes),
      layer_(layer),
      parallel_(context.parallel),
      norm1_(norm(context, "norm1", sizes.layout != BlockLayout::kAfter)),
      attention_(context.child("attention"), build, attention_options(sizes, layer)),
      norm1_after_(norm(context, "norm1_after", norms_branches(sizes.layout))),
      norm2_(norm(
          context, "norm2",
          sizes.layout != BlockLayout::kAfter && sizes.layout != BlockLayout::kParallelOneNorm)),
      mlp_(context.child("mlp"), sizes.activation, sizes.width, sizes.hidden, sizes.biases.mlp,
           sizes.deviation, sizes.output_deviation),
      norm2_after_(norm(context, "norm2_after", norms_branches(sizes.layout))) {}

std::optional<nn::Norm> TransformerBlock::norm(const nn::LayerContext& context, const char* name,
                                               bool there) const {
  if (!there) return std::nullopt;
  return std::optional<nn::Norm>(std::in_place, context.child(name), sizes_.norm, sizes_.width,
                                 sizes_.biases.norm, sizes_.norm_epsilon, sizes_.norm_plus_one);
}

Value TransformerBlock::finished(Tape& tape, const MicroBatch& batch, const Value& x,
                                 int branch) const {
  const std::optional<nn::Norm>& after = branch == 0 ? norm1_after_ : norm2_after_;
  const Value dropped =
      nn::dropout(tape, parallel_, batch, after ? after->forward(tape, x) : x, sizes_.dropout,
                  static_cast<std::uint32_t>(1 + 2 * layer_ + branch));
  return nn::scaled(tape, dropped, sizes_.residual_scale);
}

Value TransformerBlock::attended(Tape& tape, const MicroBatch& batch, const Value& x) const {
  return finished(tape, batch, attention_.forward(tape, batch, x), 0);
}

Value TransformerBlock::fed(Tape& tape, const MicroBatch& batch, const Value& x) const {
  return finished(tape, batch, mlp_.forward(tape, x), 1);
}

// Whether a branch's result is added to the stream as it is.
bool TransformerBlock::adds_results(const MicroBatch& batch) const {
  const bool drops = batch.training && sizes_.dropout > 0.0f;
  return !norms_branches(sizes_.layout) && !drops && sizes_.residual_scale == 1.0f;
}

Value TransformerBlock::add_attended(Tape& tape, const MicroBatch& batch, const Value& stream,
                                     const Value& x) const {
  if (adds_results(batch)) return attention_.forward(tape, batch, x, &stream);
  return nn::add(tape, stream, attended(tape, batch, x));
}

Value TransformerBlock::add_fed(Tape& tape, const MicroBatch& batch, const Value& stream,
                                const Value& x) const {
  if (adds_results(batch)) return mlp_.forward(tape, x, &stream);
  return nn::add(tape, stream, fed(tape, batch, x));
}

Values TransformerBlock::forward(Tape& tape, const MicroBatch& given, Values in) const {
  MicroBatch resized;
  if (sizes_.fixed_length) resized = with_length(given, sizes_.length);
  const MicroBatch& batch = sizes_.fixed_length ? resized : given;
  const Value& x = in[0];  // (B T, C)
  // The next norm is behind a boundary between blocks, so the last addition is not part of it.
  switch (sizes_.layout) {
    case BlockLayout::kBefore:
    case BlockLayout::kBoth: {
      const Value first = attended(tape, batch, norm1_->forward(tape, x));
      const auto [sum, normed] = norm2_->forward_added(tape, x, first);
      return {add_fed(tape, batch, sum, normed)};
    }
    case BlockLayout::kBehindSum: {
      const Value middle = norm1_->forward_added(tape, x, attended(tape, batch, x)).normed;
      return {norm2_->forward_added(tape, middle, fed(tape, batch, middle)).normed};
    }
    case BlockLayout::kAfter: {
      const Value sum = nn::add(tape, x, attended(tape, batch, x));
      return {nn::add(tape, sum, fed(tape, batch, sum))};
    }
    case BlockLayout::kParallel:
    case BlockLayout::kParallelOneNorm: {
      const Value normed = norm1_->forward(tape, x);
      const Value sum = add_attended(tape, batch, x, normed);
      const Value for_mlp = norm2_ ? norm2_->forward(tape, x) : normed;
      return {add_fed(tape, batch, sum, for_mlp)};
    }
  }
  throw InternalError("a block has an unknown layout");
}

void check(const TransformerSizes& sizes) {
  const auto heads = static_cast<int>(sizes.heads);
  if (sizes.head_channels == 0) {
    check_divides("model.heads", heads, "model.width", static_cast<int>(sizes.width));
  }
  check_divides("model.kv_heads", static_cast<int>(sizes.kv_heads), "model.heads", heads);
}

std::function<std::vector<nn::BoundaryTensor>(std::int64_t, std::int64_t,
                                              const nn::TensorParallel&)>
stream_of(std::int64_t width, std::int64_t length) {
  return [=](std::int64_t batch, std::int64_t given, const nn::TensorParallel& parallel) {
    const std::int64_t rows = batch * (length == 0 ? given : length);
    return std::vector<nn::BoundaryTensor>{{{parallel.outside_rows(rows), width}}};
  };
}

void add_layers(nn::ModelPlan& plan,
                const std::function<const TransformerSizes&(std::int64_t)>& sizes_of,
                std::int64_t layers) {
  for (int layer = 0; layer < static_cast<int>(layers); ++layer) {
    const TransformerSizes& sizes = sizes_of(layer);
    plan.blocks.push_back(
        {.name = fmt::format("blocks.{}", layer),
         .kind = sizes.kind,
         .build =
             [sizes, layer](nn::BuildContext& build) {
               return std::make_unique<TransformerBlock>(sizes, build, layer);
             },
         .boundary = stream_of(sizes.width, sizes.fixed_length ? sizes.length : 0)});
  }
}

void add_layers(nn::ModelPlan& plan, const TransformerSizes& sizes, std::int64_t layers) {
  add_layers(
      plan, [&](std::int64_t) -> const TransformerSizes& { return sizes; }, layers);
}

std::string sizes_text(const TransformerSizes& s, std::int64_t layers) {
  return fmt::format(
      "{} layers, width {}, {} heads{}", layers, s.width, s.heads,
      s.kv_heads == s.heads ? "" : fmt::format(" ({} for keys and values)", s.kv_heads));
}

std::vector<Operation> layer_operations(const TransformerSizes& s, std::int64_t samples) {
  const std::int64_t rows = samples * s.length;
  const ops::AttentionShape attention = s.attention(samples);
  std::vector<Operation> list = {
      LinearSizes{"query_key_value", rows, s.width, attention.row()},
      AttentionSizes{attention, s.rotations.of(s.length)},
      LinearSizes{"attention_output", rows, s.heads * s.head_size(), s.width},
      NormSizes{s.norm, rows, s.width},
      LinearSizes{"feed_forward_up", rows, s.width, s.up()},
      ActivationSizes{s.activation, rows, s.hidden}};
  if (s.activation == nn::ActivationKind::kGelu) {
    list.emplace_back(LinearGeluSizes{rows, s.width, s.hidden});
  }
  list.emplace_back(LinearSizes{"feed_forward_down", rows, s.hidden, s.width});
  list.emplace_back(AddSizes{rows, s.width});
  list.emplace_back(ElementwiseSizes{rows, s.length, s.width});
  return list;
}

}  // namespace trireme::models

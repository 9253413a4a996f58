#include "models/transformer.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "models/keys.h"

namespace trireme::models {

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
                       {parameters_, tensor_parallel(build), fmt::format("blocks.{}", layer)}) {}

TransformerBlock::TransformerBlock(const TransformerSizes& sizes, nn::BuildContext& build,
                                   int layer, const nn::LayerContext& context)
    : sizes_(sizes),
      layer_(layer),
      parallel_(context.parallel),
      norm1_(context.child("norm1"), sizes.norm, sizes.width, sizes.bias, sizes.norm_epsilon),
      attention_(
          context.child("attention"), build,
          {sizes.width, sizes.heads, sizes.kv_heads, sizes.bias, sizes.positions,
           sizes.rotary_theta, sizes.deviation, sizes.output_deviation, layer, sizes.causal}),
      norm2_(context.child("norm2"), sizes.norm, sizes.width, sizes.bias, sizes.norm_epsilon),
      mlp_(context.child("mlp"), sizes.activation, sizes.width, sizes.hidden, sizes.bias,
           sizes.deviation, sizes.output_deviation) {}

Value TransformerBlock::drop(Tape& tape, const MicroBatch& batch, const Value& x,
                             int branch) const {
  return nn::dropout(tape, parallel_, batch, x, sizes_.dropout,
                     static_cast<std::uint32_t>(1 + 2 * layer_ + branch));
}

Values TransformerBlock::forward(Tape& tape, const MicroBatch& given, Values in) const {
  MicroBatch resized;
  if (sizes_.fixed_length) resized = with_length(given, sizes_.length);
  const MicroBatch& batch = sizes_.fixed_length ? resized : given;
  const Value& x = in[0];  // (B T, C)
  if (sizes_.norm_after) {
    const Value attended = drop(tape, batch, attention_.forward(tape, batch, x), 0);
    const Value middle = norm1_.forward_added(tape, x, attended).normed;
    const Value fed = drop(tape, batch, mlp_.forward(tape, middle), 1);
    return {norm2_.forward_added(tape, middle, fed).normed};
  }
  const Value attended =
      drop(tape, batch, attention_.forward(tape, batch, norm1_.forward(tape, x)), 0);
  const auto [sum, normed] = norm2_.forward_added(tape, x, attended);
  // The last addition is a pass of its own: the next norm is behind a boundary between blocks.
  return {nn::add(tape, sum, drop(tape, batch, mlp_.forward(tape, normed), 1))};
}

void check(const TransformerSizes& sizes) {
  const auto heads = static_cast<int>(sizes.heads);
  check_divides("model.heads", heads, "model.width", static_cast<int>(sizes.width));
  check_divides("model.kv_heads", static_cast<int>(sizes.kv_heads), "model.heads", heads);
  if (sizes.positions == nn::PositionKind::kRotary && sizes.width / sizes.heads % 2 != 0) {
    throw ConfigError(
        fmt::format("rotary positions need an even head size, not {} (model.width / "
                    "model.heads)",
                    sizes.width / sizes.heads));
  }
}

std::function<std::vector<nn::BoundaryTensor>(std::int64_t, std::int64_t,
                                              const nn::TensorParallel&)>
stream_of(std::int64_t width, std::int64_t length) {
  return [=](std::int64_t batch, std::int64_t given, const nn::TensorParallel& parallel) {
    const std::int64_t rows = batch * (length == 0 ? given : length);
    return std::vector<nn::BoundaryTensor>{{{parallel.outside_rows(rows), width}}};
  };
}

void add_layers(nn::ModelPlan& plan, const TransformerSizes& sizes, std::int64_t layers) {
  for (int layer = 0; layer < static_cast<int>(layers); ++layer) {
    plan.blocks.push_back(
        {.name = fmt::format("blocks.{}", layer),
         .kind = "layer",
         .build =
             [sizes, layer](nn::BuildContext& build) {
               return std::make_unique<TransformerBlock>(sizes, build, layer);
             },
         .boundary = stream_of(sizes.width, sizes.fixed_length ? sizes.length : 0)});
  }
}

std::string sizes_text(const TransformerSizes& s, std::int64_t layers) {
  return fmt::format(
      "{} layers, width {}, {} heads{}", layers, s.width, s.heads,
      s.kv_heads == s.heads ? "" : fmt::format(" ({} for keys and values)", s.kv_heads));
}

std::vector<Operation> layer_operations(const TransformerSizes& s, std::int64_t samples) {
  const std::int64_t rows = samples * s.length;
  const ops::AttentionShape attention = s.attention(samples);
  const bool rotary = s.positions == nn::PositionKind::kRotary;
  std::vector<Operation> list = {
      LinearSizes{"query_key_value", rows, s.width, attention.row()},
      AttentionSizes{attention, rotary ? std::optional(s.rotary_theta) : std::nullopt},
      LinearSizes{"attention_output", rows, s.width, s.width},
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

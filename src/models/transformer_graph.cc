#include "models/transformer_graph.h"

#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/format.h>

namespace trireme::models {
namespace {

// What stands for a score that does not count: not infinity, which would make NaN of a row without
// any other score.
constexpr float kNoScore = std::numeric_limits<float>::lowest();

// cos and sin (T, head size / 2) of each position times its frequencies.
void add_rotary(OnnxBuilder& graph, const TransformerSizes& sizes, const GraphValue& numbers,
                GraphPositions& positions) {
  const std::int64_t head = sizes.width / sizes.heads;
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head / 2; ++i) {
    frequencies.push_back(
        static_cast<float>(std::pow(static_cast<double>(sizes.rotary_theta),
                                    -2.0 * static_cast<double>(i) / static_cast<double>(head))));
  }
  const GraphValue column = graph.apply("Unsqueeze", {numbers, graph.integers({1})});
  const GraphValue angles =
      graph.apply("Mul", {graph.cast(column, OnnxType::kFloat), graph.numbers(frequencies)});
  positions.cosine = graph.apply("Cos", {angles});
  positions.sine = graph.apply("Sin", {angles});
}

// x (..., T, head size), of whose channels i and i + half make a pair that is turned.
GraphValue rotated(OnnxBuilder& graph, const GraphPositions& positions, const GraphValue& x,
                   std::int64_t head) {
  if (positions.cosine.empty()) return x;
  const auto halves = graph.apply_many("Split", {x, graph.integers({head / 2, head / 2})},
                                       {{"axis", std::int64_t{-1}}}, 2);
  const auto times = [&](int half, const GraphValue& factor) {
    return graph.apply("Mul", {halves[static_cast<std::size_t>(half)], factor});
  };
  const GraphValue low = graph.apply("Sub", {times(0, positions.cosine), times(1, positions.sine)});
  const GraphValue high =
      graph.apply("Add", {times(1, positions.cosine), times(0, positions.sine)});
  return graph.apply("Concat", {low, high}, {{"axis", std::int64_t{-1}}});
}

// x (rows, C), a norm's result, -> (rows, C).
GraphValue add_attention(OnnxBuilder& graph, const TransformerSizes& sizes, const std::string& name,
                         const GraphPositions& positions, const GraphValue& x) {
  const std::int64_t width = sizes.width, head = width / sizes.heads, kv_heads = sizes.kv_heads;
  const std::int64_t each = sizes.heads / kv_heads;  // heads that share a key
  const Shape kv_shape = {kv_heads * head, width};
  const auto projected = graph.linears(
      x,
      {{name + ".query", {width, width}}, {name + ".key", kv_shape}, {name + ".value", kv_shape}},
      sizes.bias);
  // (B, KV, T, D); with several heads to a key (B, KV, 1, T, D), and of the query (B, KV, G, T, D).
  const bool grouped = each > 1;
  const auto heads_of = [&](const GraphValue& rows, std::int64_t group) {
    const GraphExtents more =
        grouped ? GraphExtents{kv_heads, group, head} : GraphExtents{kv_heads, head};
    const GraphValue parts = graph.apply("Reshape", {rows, positions.shape(more)});
    return graph.transpose(parts, grouped ? GraphExtents{0, 2, 3, 1, 4} : GraphExtents{0, 2, 1, 3});
  };
  const GraphValue query = rotated(graph, positions, heads_of(projected[0], each), head);
  const GraphValue key = rotated(graph, positions, heads_of(projected[1], 1), head);
  const GraphValue value = heads_of(projected[2], 1);

  const GraphValue scale = graph.number(1.0f / std::sqrt(static_cast<float>(head)));
  const GraphValue turned =
      graph.transpose(key, grouped ? GraphExtents{0, 1, 2, 4, 3} : GraphExtents{0, 1, 3, 2});
  GraphValue scores = graph.apply("MatMul", {graph.apply("Mul", {query, scale}), turned});
  if (!positions.mask.empty()) {
    scores = graph.apply("Where", {positions.mask, scores, graph.number(kNoScore)});
  }
  const GraphValue shares = graph.apply("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  const GraphValue mixed = graph.apply("MatMul", {shares, value});
  const GraphValue together =
      graph.transpose(mixed, grouped ? GraphExtents{0, 3, 1, 2, 4} : GraphExtents{0, 2, 1, 3});
  return graph
      .linears(graph.reshape(together, {-1, width}), {{name + ".output", {width, width}}},
               sizes.bias)
      .front();
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
GraphValue gelu_by_tanh(OnnxBuilder& graph, const GraphValue& x) {
  const auto times = [&](const GraphValue& a, const GraphValue& b) {
    return graph.apply("Mul", {a, b});
  };
  const GraphValue cube = times(times(x, x), x);
  const GraphValue inner = graph.apply("Add", {x, times(cube, graph.number(0.044715f))});
  const float factor = std::sqrt(2.0f * std::numbers::inv_pi_v<float>);
  const GraphValue curve = graph.apply("Tanh", {times(inner, graph.number(factor))});
  return times(times(x, graph.apply("Add", {curve, graph.number(1.0f)})), graph.number(0.5f));
}

GraphValue add_mlp(OnnxBuilder& graph, const TransformerSizes& sizes, const std::string& name,
                   const GraphValue& x) {
  const Shape up_shape = {sizes.hidden, sizes.width};
  const auto layer = [&](const GraphValue& in, const char* part, const Shape& shape) {
    return graph.linears(in, {{name + part, shape}}, sizes.bias).front();
  };
  GraphValue hidden = layer(x, ".up", up_shape);
  switch (sizes.activation) {
    case nn::ActivationKind::kGelu:
      hidden = gelu_by_tanh(graph, hidden);
      break;
    case nn::ActivationKind::kGeluErf:
      hidden = add_gelu_erf(graph, hidden);
      break;
    case nn::ActivationKind::kSwiglu: {
      const GraphValue gate = layer(x, ".gate", up_shape);
      const GraphValue swish = graph.apply("Mul", {gate, graph.apply("Sigmoid", {gate})});
      hidden = graph.apply("Mul", {swish, hidden});
      break;
    }
  }
  return layer(hidden, ".down", {sizes.width, sizes.hidden});
}

}  // namespace

GraphValue add_gelu_erf(OnnxBuilder& graph, const GraphValue& x) {
  const GraphValue scaled = graph.apply("Div", {x, graph.number(std::numbers::sqrt2_v<float>)});
  const GraphValue sum = graph.apply("Add", {graph.apply("Erf", {scaled}), graph.number(1.0f)});
  return graph.apply("Mul", {graph.apply("Mul", {x, sum}), graph.number(0.5f)});
}

GraphValue position_numbers(OnnxBuilder& graph, const GraphValue& tokens) {
  const GraphValue length =
      graph.apply("Gather", {graph.apply("Shape", {tokens}), graph.integer(1)});  // a scalar
  return graph.apply("Range", {graph.integer(0), length, graph.integer(1)});
}

GraphPositions positions_of_tokens(OnnxBuilder& graph, const TransformerSizes& sizes,
                                   const GraphValue& tokens) {
  GraphPositions positions;
  positions.shape = [&graph, tokens](const GraphExtents& more) {
    return graph.apply("Concat", {graph.apply("Shape", {tokens}), graph.integers(more)},
                       {{"axis", std::int64_t{0}}});
  };
  const GraphValue numbers = position_numbers(graph, tokens);
  if (sizes.causal) {
    const GraphValue rows = graph.apply("Unsqueeze", {numbers, graph.integers({1})});
    positions.mask = graph.apply("GreaterOrEqual", {rows, numbers});  // (T, T)
  }
  if (sizes.positions == nn::PositionKind::kRotary) add_rotary(graph, sizes, numbers, positions);
  return positions;
}

GraphPositions fixed_positions(OnnxBuilder& graph, const TransformerSizes& sizes) {
  return {.shape = [&graph, length = sizes.length](const GraphExtents& more) {
    GraphExtents shape = {-1, length};
    shape.insert(shape.end(), more.begin(), more.end());
    return graph.integers(shape);
  }};
}

GraphValue add_norm(OnnxBuilder& graph, const TransformerSizes& sizes, const std::string& name,
                    const GraphValue& x) {
  const Shape vector = {sizes.width};
  const GraphValue weight = graph.parameter(name + ".weight", vector);
  if (sizes.norm == nn::NormKind::kLayer) {
    std::vector<GraphValue> inputs = {x, weight};
    if (sizes.bias) inputs.push_back(graph.parameter(name + ".bias", vector));
    return graph.apply("LayerNormalization", std::move(inputs),
                       {{"axis", std::int64_t{-1}}, {"epsilon", sizes.norm_epsilon}});
  }
  const GraphValue mean = graph.apply("ReduceMean", {graph.apply("Mul", {x, x})},
                                      {{"axes", GraphExtents{-1}}, {"keepdims", std::int64_t{1}}});
  const GraphValue variance = graph.apply("Add", {mean, graph.number(sizes.norm_epsilon)});
  return graph.apply("Mul", {graph.apply("Div", {x, graph.apply("Sqrt", {variance})}), weight});
}

GraphValue add_transformer_block(OnnxBuilder& graph, const TransformerSizes& sizes, int layer,
                                 const GraphPositions& positions, const GraphValue& x) {
  const std::string name = fmt::format("blocks.{}", layer);
  graph.enter(name);
  const auto normed = [&](const char* which, const GraphValue& value) {
    return add_norm(graph, sizes, name + which, value);
  };
  const auto attended = [&](const GraphValue& value) {
    return add_attention(graph, sizes, name + ".attention", positions, value);
  };
  const auto fed = [&](const GraphValue& value) {
    return add_mlp(graph, sizes, name + ".mlp", value);
  };
  if (sizes.norm_after) {
    const GraphValue middle = normed(".norm1", graph.apply("Add", {x, attended(x)}));
    return normed(".norm2", graph.apply("Add", {middle, fed(middle)}));
  }
  const GraphValue sum = graph.apply("Add", {x, attended(normed(".norm1", x))});
  return graph.apply("Add", {sum, fed(normed(".norm2", sum))});
}

}  // namespace trireme::models

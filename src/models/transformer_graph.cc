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

GraphValue frequencies_of(OnnxBuilder& graph, const ops::Rotation& rotation) {
  std::vector<float> values;
  for (const double frequency : rotation.frequencies) {
    values.push_back(static_cast<float>(frequency));
  }
  return graph.numbers(values);
}

// cos and sin (T, pairs) of each position times its frequencies, and what queries are multiplied
// by (T, 1). Both rotations of a model have the same pairs and factors but for the amplitude.
void add_rotary(OnnxBuilder& graph, const nn::Rotations& rotations, const GraphValue& numbers,
                const GraphValue& length, GraphPositions& positions) {
  const ops::Rotation& near = rotations.near;
  const GraphValue column =
      graph.cast(graph.apply("Unsqueeze", {numbers, graph.integers({1})}), OnnxType::kFloat);
  GraphValue frequencies = frequencies_of(graph, near);
  GraphValue amplitude = near.amplitude == 1.0f ? GraphValue() : graph.number(near.amplitude);
  if (rotations.far_from > 0) {
    const GraphValue far = graph.apply("Greater", {length, graph.integer(rotations.far_from)});
    frequencies = graph.apply("Where", {far, frequencies_of(graph, rotations.far), frequencies});
    if (rotations.far.amplitude != near.amplitude) {
      amplitude = graph.apply(
          "Where", {far, graph.number(rotations.far.amplitude), graph.number(near.amplitude)});
    }
  }
  const GraphValue angles = graph.apply("Mul", {column, frequencies});
  positions.cosine = graph.apply("Cos", {angles});
  positions.sine = graph.apply("Sin", {angles});
  if (!amplitude.empty()) {
    positions.cosine = graph.apply("Mul", {positions.cosine, amplitude});
    positions.sine = graph.apply("Mul", {positions.sine, amplitude});
  }
  if (near.query_growth == 0.0f) return;
  const GraphValue periods = graph.apply(
      "Floor", {graph.apply("Div", {column, graph.number(static_cast<float>(near.query_period))})});
  const GraphValue logarithm =
      graph.apply("Log", {graph.apply("Add", {periods, graph.number(1.0f)})});
  positions.query_factor = graph.apply(
      "Add",
      {graph.apply("Mul", {logarithm, graph.number(near.query_growth)}), graph.number(1.0f)});
}

std::vector<GraphValue> split_last(OnnxBuilder& graph, const GraphValue& x,
                                   const GraphExtents& extents) {
  return graph.apply_many("Split", {x, graph.integers(extents)}, {{"axis", std::int64_t{-1}}},
                          extents.size());
}

// The two channels of each pair of x (..., 2 pairs), (..., pairs), turned.
std::vector<GraphValue> turned_pairs(OnnxBuilder& graph, const GraphPositions& positions,
                                     const GraphValue& low, const GraphValue& high) {
  const auto times = [&](const GraphValue& half, const GraphValue& factor) {
    return graph.apply("Mul", {half, factor});
  };
  return {graph.apply("Sub", {times(low, positions.cosine), times(high, positions.sine)}),
          graph.apply("Add", {times(high, positions.cosine), times(low, positions.sine)})};
}

// x (..., T, head size), some of whose channels make pairs that are turned.
GraphValue rotated(OnnxBuilder& graph, const GraphPositions& positions,
                   const ops::Rotation& rotation, const GraphValue& x, std::int64_t head) {
  if (positions.cosine.empty()) return x;
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  const OnnxBuilder::Attributes last = {{"axis", std::int64_t{-1}}};
  std::vector<GraphValue> parts = {x};
  if (2 * pairs < head) parts = split_last(graph, x, {2 * pairs, head - 2 * pairs});
  if (rotation.adjacent) {
    // (..., pairs, 2): the channels of a pair are side by side.
    const GraphValue side_by_side =
        graph.apply("Reshape", {parts[0], graph.integers({0, 0, 0, -1, 2})});
    const auto channel = [&](std::int64_t which) {
      return graph.apply("Gather", {side_by_side, graph.integer(which)}, last);
    };
    const auto turned = turned_pairs(graph, positions, channel(0), channel(1));
    const auto column = [&](const GraphValue& value) {
      return graph.apply("Unsqueeze", {value, graph.integers({-1})});
    };
    const GraphValue together = graph.apply("Concat", {column(turned[0]), column(turned[1])}, last);
    parts[0] = graph.apply("Reshape", {together, graph.integers({0, 0, 0, 2 * pairs})});
  } else {
    const auto halves = split_last(graph, parts[0], {pairs, pairs});
    parts[0] = graph.apply("Concat", turned_pairs(graph, positions, halves[0], halves[1]), last);
  }
  return parts.size() == 1 ? parts[0] : graph.apply("Concat", parts, last);
}

// x / sqrt(mean(x^2) + epsilon) * weight over the last dimension.
GraphValue rms_normed(OnnxBuilder& graph, const TransformerSizes& sizes, GraphValue weight,
                      const GraphValue& x) {
  const GraphValue mean = graph.apply("ReduceMean", {graph.apply("Mul", {x, x})},
                                      {{"axes", GraphExtents{-1}}, {"keepdims", std::int64_t{1}}});
  const GraphValue variance = graph.apply("Add", {mean, graph.number(sizes.norm_epsilon)});
  if (sizes.norm_plus_one) weight = graph.apply("Add", {weight, graph.number(1.0f)});
  return graph.apply("Mul", {graph.apply("Div", {x, graph.apply("Sqrt", {variance})}), weight});
}

// x (rows, heads * head size): the norm of queries or keys.
GraphValue head_normed(OnnxBuilder& graph, const TransformerSizes& sizes, const std::string& name,
                       const GraphValue& x, std::int64_t heads) {
  const std::int64_t head = sizes.head_size();
  if (sizes.query_key_norm == nn::QueryKeyNorm::kNone) return x;
  if (sizes.query_key_norm == nn::QueryKeyNorm::kWidth) {
    return rms_normed(graph, sizes, graph.parameter(name + ".weight", {heads * head}), x);
  }
  const GraphValue normed = rms_normed(graph, sizes, graph.parameter(name + ".weight", {head}),
                                       graph.reshape(x, {-1, heads, head}));
  return graph.reshape(normed, {-1, heads * head});
}

// scores, or cap * tanh(scores / cap).
GraphValue capped(OnnxBuilder& graph, const GraphValue& scores, float cap) {
  if (cap == 0.0f) return scores;
  const GraphValue bent = graph.apply("Tanh", {graph.apply("Div", {scores, graph.number(cap)})});
  return graph.apply("Mul", {bent, graph.number(cap)});
}

// x (rows, C) -> (rows, C).
GraphValue add_attention(OnnxBuilder& graph, const TransformerSizes& sizes, const std::string& name,
                         const GraphPositions& positions, const GraphValue& x) {
  const std::int64_t width = sizes.width, head = sizes.head_size(), kv_heads = sizes.kv_heads;
  const std::int64_t each = sizes.heads / kv_heads;  // heads that share a key
  const Shape kv_shape = {kv_heads * head, width}, query_shape = {sizes.heads * head, width};
  auto projected = graph.linears(
      x, {{name + ".query", query_shape}, {name + ".key", kv_shape}, {name + ".value", kv_shape}},
      sizes.biases.qkv);
  projected[0] = head_normed(graph, sizes, name + ".query_norm", projected[0], sizes.heads);
  projected[1] = head_normed(graph, sizes, name + ".key_norm", projected[1], kv_heads);
  // (B, H, T, D); the query afterwards (B, KV, G, T, D) where several heads share a key.
  const auto heads_of = [&](const GraphValue& rows, std::int64_t heads) {
    const GraphValue parts =
        graph.apply("Reshape", {rows, positions.shape(GraphExtents{heads, head})});
    return graph.transpose(parts, GraphExtents{0, 2, 1, 3});
  };
  const ops::Rotation& rotation = sizes.rotations.near;
  GraphValue query = rotated(graph, positions, rotation, heads_of(projected[0], sizes.heads), head);
  GraphValue key = rotated(graph, positions, rotation, heads_of(projected[1], kv_heads), head);
  GraphValue value = heads_of(projected[2], kv_heads);
  if (!positions.query_factor.empty()) {
    query = graph.apply("Mul", {query, positions.query_factor});
  }
  const bool grouped = each > 1;
  if (grouped) {
    query = graph.apply("Reshape", {query, graph.integers({0, kv_heads, each, -1, head})});
    key = graph.apply("Unsqueeze", {key, graph.integers({2})});
    value = graph.apply("Unsqueeze", {value, graph.integers({2})});
  }
  const GraphValue scale = graph.number(sizes.attention(1).factor());
  const GraphValue turned =
      graph.transpose(key, grouped ? GraphExtents{0, 1, 2, 4, 3} : GraphExtents{0, 1, 3, 2});
  GraphValue scores =
      capped(graph, graph.apply("MatMul", {graph.apply("Mul", {query, scale}), turned}),
             sizes.attention_cap);
  if (!positions.mask.empty()) {
    scores = graph.apply("Where", {positions.mask, scores, graph.number(kNoScore)});
  }
  const GraphValue shares = graph.apply("Softmax", {scores}, {{"axis", std::int64_t{-1}}});
  const GraphValue mixed = graph.apply("MatMul", {shares, value});
  const GraphValue together =
      graph.transpose(mixed, grouped ? GraphExtents{0, 3, 1, 2, 4} : GraphExtents{0, 2, 1, 3});
  return graph
      .linears(graph.reshape(together, {-1, sizes.heads * head}),
               {{name + ".output", {width, sizes.heads * head}}}, sizes.biases.output)
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
  std::vector<OnnxBuilder::Linear> first = {{name + ".up", up_shape}};
  if (nn::is_gated(sizes.activation)) first.insert(first.begin(), {name + ".gate", up_shape});
  const std::vector<GraphValue> inside = graph.linears(x, first, sizes.biases.mlp);
  const GraphValue& gate = inside.front();
  GraphValue hidden = inside.back();
  switch (sizes.activation) {
    case nn::ActivationKind::kGelu:
      hidden = gelu_by_tanh(graph, hidden);
      break;
    case nn::ActivationKind::kGeluErf:
      hidden = add_gelu_erf(graph, hidden);
      break;
    case nn::ActivationKind::kGeglu:
      hidden = graph.apply("Mul", {gelu_by_tanh(graph, gate), hidden});
      break;
    case nn::ActivationKind::kSwiglu: {
      const GraphValue swish = graph.apply("Mul", {gate, graph.apply("Sigmoid", {gate})});
      hidden = graph.apply("Mul", {swish, hidden});
      break;
    }
  }
  return graph.linears(hidden, {{name + ".down", {sizes.width, sizes.hidden}}}, sizes.biases.mlp)
      .front();
}

}  // namespace

GraphValue scaled_value(OnnxBuilder& graph, const GraphValue& x, float factor) {
  return factor == 1.0f ? x : graph.apply("Mul", {x, graph.number(factor)});
}

GraphValue bent_logits(OnnxBuilder& graph, const GraphValue& logits, const ops::LogitBend& bend) {
  return capped(graph, scaled_value(graph, logits, bend.scale), bend.cap);
}

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
    if (sizes.window > 0) {
      const GraphValue end = graph.apply("Add", {numbers, graph.integer(sizes.window)});
      const GraphValue inside = graph.apply("Less", {rows, end});
      positions.mask = graph.apply("And", {positions.mask, inside});
    }
  }
  if (!sizes.rotations.near.frequencies.empty()) {
    const GraphValue length =
        graph.apply("Gather", {graph.apply("Shape", {tokens}), graph.integer(1)});
    add_rotary(graph, sizes.rotations, numbers, length, positions);
  }
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
  if (sizes.norm == nn::NormKind::kRms) return rms_normed(graph, sizes, weight, x);
  std::vector<GraphValue> inputs = {x, weight};
  if (sizes.biases.norm) inputs.push_back(graph.parameter(name + ".bias", vector));
  return graph.apply("LayerNormalization", std::move(inputs),
                     {{"axis", std::int64_t{-1}}, {"epsilon", sizes.norm_epsilon}});
}

GraphValue add_transformer_block(OnnxBuilder& graph, const TransformerSizes& sizes, int layer,
                                 const GraphPositions& positions, const GraphValue& x) {
  const std::string name = fmt::format("blocks.{}", layer);
  graph.enter(name);
  const BlockLayout layout = sizes.layout;
  const auto normed = [&](const char* which, const GraphValue& value) {
    return add_norm(graph, sizes, name + which, value);
  };
  const auto finished = [&](const char* after, GraphValue value) {
    if (layout == BlockLayout::kAfter || layout == BlockLayout::kBoth) value = normed(after, value);
    return scaled_value(graph, value, sizes.residual_scale);
  };
  const auto attended = [&](const GraphValue& value) {
    return finished(".norm1_after",
                    add_attention(graph, sizes, name + ".attention", positions, value));
  };
  const auto fed = [&](const GraphValue& value) {
    return finished(".norm2_after", add_mlp(graph, sizes, name + ".mlp", value));
  };
  const auto sum_of = [&](const GraphValue& a, const GraphValue& b) {
    return graph.apply("Add", {a, b});
  };
  switch (layout) {
    case BlockLayout::kBehindSum: {
      const GraphValue middle = normed(".norm1", sum_of(x, attended(x)));
      return normed(".norm2", sum_of(middle, fed(middle)));
    }
    case BlockLayout::kAfter: {
      const GraphValue sum = sum_of(x, attended(x));
      return sum_of(sum, fed(sum));
    }
    case BlockLayout::kParallel:
    case BlockLayout::kParallelOneNorm: {
      const GraphValue first = normed(".norm1", x);
      const GraphValue sum = sum_of(x, attended(first));
      return sum_of(sum, fed(layout == BlockLayout::kParallel ? normed(".norm2", x) : first));
    }
    case BlockLayout::kBefore:
    case BlockLayout::kBoth:
      break;
  }
  const GraphValue sum = sum_of(x, attended(normed(".norm1", x)));
  return sum_of(sum, fed(normed(".norm2", sum)));
}

}  // namespace trireme::models

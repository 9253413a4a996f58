// The blocks of transformers as operations of ONNX.
#pragma once

#include <functional>
#include <string>

#include "models/onnx_builder.h"
#include "models/transformer.h"

namespace trireme::models {

// What the attention of all blocks of a kind has in common.
struct GraphPositions {
  // Returns the shape {samples, positions, ...} to which rows are brought.
  std::function<GraphValue(const GraphExtents& more)> shape;
  GraphValue mask = {};               // true: may be read; broadcast to (..., T, T); empty: all may
  GraphValue cosine = {}, sine = {};  // of rotary positions, (T, pairs); or empty
  GraphValue query_factor = {};       // Rotation::query_growth, (T, 1); or empty
};

// The positions of `tokens` (batch, length), each of which reads itself and those before it that
// are in its window if `sizes` are causal.
GraphPositions positions_of_tokens(OnnxBuilder& graph, const TransformerSizes& sizes,
                                   const GraphValue& tokens);
// The positions of samples that have as many as sizes.length says.
GraphPositions fixed_positions(OnnxBuilder& graph, const TransformerSizes& sizes);
// The numbers 0 to T - 1 for `tokens` (batch, T).
GraphValue position_numbers(OnnxBuilder& graph, const GraphValue& tokens);

// x (rows, C) -> (rows, C): TransformerBlock::forward and nn::Norm::forward in an evaluation.
GraphValue add_transformer_block(OnnxBuilder& graph, const TransformerSizes& sizes, int layer,
                                 const GraphPositions& positions, const GraphValue& x);
// x times a factor; x if that is 1.
GraphValue scaled_value(OnnxBuilder& graph, const GraphValue& x, float factor);
// ops::bend_logits.
GraphValue bent_logits(OnnxBuilder& graph, const GraphValue& logits, const ops::LogitBend& bend);
// x times the normal distribution function of x.
GraphValue add_gelu_erf(OnnxBuilder& graph, const GraphValue& x);
GraphValue add_norm(OnnxBuilder& graph, const TransformerSizes& sizes, const std::string& name,
                    const GraphValue& x);

}  // namespace trireme::models

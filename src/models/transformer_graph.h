// The blocks of transformers as operations of ONNX.
#pragma once

#include <functional>
#include <string>

#include "models/onnx_builder.h"
#include "models/transformer.h"

namespace trireme::models {

// What the attention of all blocks has in common.
struct GraphPositions {
  // Returns the shape {samples, positions, ...} to which rows are brought.
  std::function<OnnxBuilder::Value(const OnnxBuilder::Extents& more)> shape;
  OnnxBuilder::Value mask = {};  // true: may be read; broadcast to (..., T, T); empty: all may
  OnnxBuilder::Value cosine = {}, sine = {};  // of rotary positions, (T, head size / 2); or empty
};

// The positions of `tokens` (batch, length), each of which reads itself and those before it if
// `sizes` are causal.
GraphPositions positions_of_tokens(OnnxBuilder& graph, const TransformerSizes& sizes,
                                   const OnnxBuilder::Value& tokens);
// As many positions in each sample as sizes.length says.
GraphPositions fixed_positions(OnnxBuilder& graph, const TransformerSizes& sizes);
// The numbers 0 to T - 1 for `tokens` (batch, T).
OnnxBuilder::Value position_numbers(OnnxBuilder& graph, const OnnxBuilder::Value& tokens);

// x (rows, C) -> (rows, C): TransformerBlock::forward and nn::Norm::forward in an evaluation.
OnnxBuilder::Value add_transformer_block(OnnxBuilder& graph, const TransformerSizes& sizes,
                                         int layer, const GraphPositions& positions,
                                         const OnnxBuilder::Value& x);
// x times the normal distribution function of x.
OnnxBuilder::Value add_gelu_erf(OnnxBuilder& graph, const OnnxBuilder::Value& x);
OnnxBuilder::Value add_norm(OnnxBuilder& graph, const TransformerSizes& sizes,
                            const std::string& name, const OnnxBuilder::Value& x);

}  // namespace trireme::models

// Models of the family `bert` as graphs of ONNX.
#pragma once

#include "trireme/models/onnx.h"

#include "models/bert/bert.h"

namespace trireme::models {

// `tokens`, `attention_mask` (1 for tokens that are no padding, else 0) and `segments` (0 or 1),
// all (batch, length), int64, of at most model.context tokens -> `logits` (batch, length,
// vocabulary).
OnnxModel onnx_model(const BertConfig& config, DType weights);

}  // namespace trireme::models

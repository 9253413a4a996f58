// Models of the family `gpt` as graphs of ONNX.
#pragma once

#include "trireme/models/onnx.h"

#include "models/gpt/gpt.h"

namespace trireme::models {

// `tokens` (batch, length), int64, of at most `model.context` tokens where positions are learned ->
// `logits` (batch, length, vocabulary). Weights have transformers' names if the model is a GPT-2 or
// a Llama, otherwise ours.
OnnxModel onnx_model(const GptConfig& config, DType weights);

}  // namespace trireme::models

// Models of the family `vit` as graphs of ONNX.
#pragma once

#include "trireme/models/onnx.h"

#include "models/vit/vit.h"

namespace trireme::models {

// `pixels` (batch, 3, height, width), normalised -> `logits` (batch, classes).
OnnxModel onnx_model(const VitConfig& config, DType weights);

}  // namespace trireme::models

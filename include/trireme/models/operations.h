// The operations that a model makes, each with its sizes. A family lists those of its models, and
// `trireme bench ops` measures them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "trireme/nn/layers.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/convolution.h"
#include "trireme/ops/pooling.h"

namespace trireme::models {

// y (rows, out) = x (rows, in) w^T.
struct LinearSizes {
  std::string name;
  std::int64_t rows, in, out;
};
// The same with a bias and GELU in one operation; with its gradient, also of the next product.
struct LinearGeluSizes {
  std::int64_t rows, in, out;
};
struct AttentionSizes {
  ops::AttentionShape shape;
  ops::Rotation rotation;  // without frequencies queries and keys do not turn
};
struct NormSizes {
  nn::NormKind kind;
  std::int64_t rows, width;
};
struct ActivationSizes {
  nn::ActivationKind kind;
  std::int64_t rows, hidden;  // of the result
};
struct AddSizes {
  std::int64_t rows, width;
};
// Dropout, the gradient of a bias, casts between types. A sample has `length` rows.
struct ElementwiseSizes {
  std::int64_t rows, length, width;
};
struct EmbeddingSizes {
  std::int64_t rows, vocabulary, width;
};
// Learned positions. A sample has `length` rows.
struct PositionsSizes {
  std::int64_t rows, length, width;
};
struct ConvolutionSizes {
  ops::ConvolutionShape shape;
};
// A batch norm over the pixels of a micro-batch, with what follows it.
struct BatchNormSizes {
  std::int64_t rows, channels;
  bool clamps;         // ReLU, ReLU6
  bool adds_residual;  // the other path of a residual block
};
struct MaxPoolingSizes {
  ops::PoolingShape shape;
};
// The mean over a picture of side x side pixels.
struct GlobalPoolingSizes {
  std::int64_t samples, side, channels;
};
struct ClassificationLossSizes {
  std::int64_t samples, classes;
};
// The last product and the softmax loss of its result, whose type is asked for as in
// nn::type_of_logits.
struct LossSizes {
  std::int64_t rows, width, classes;
  DType logits = DType::kF32;
};
// The optimizer's update of one block's parameters.
struct UpdateSizes {
  std::int64_t elements;
};

using Operation = std::variant<LinearSizes, LinearGeluSizes, AttentionSizes, NormSizes,
                               ActivationSizes, AddSizes, ElementwiseSizes, EmbeddingSizes,
                               PositionsSizes, ConvolutionSizes, BatchNormSizes, MaxPoolingSizes,
                               GlobalPoolingSizes, ClassificationLossSizes, LossSizes, UpdateSizes>;

}  // namespace trireme::models

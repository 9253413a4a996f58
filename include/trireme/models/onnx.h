// Models as graphs of ONNX (https://onnx.ai): operations that other programs carry out, and the
// messages that a file consists of.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/models/foreign.h"
#include "trireme/tensor/dtype.h"

namespace trireme::models {

// The operators are those of this version of ONNX's standard set, which came with version 1.12.
inline constexpr int kOnnxOperators = 17;

// Types of elements, with their numbers in ONNX.
enum class OnnxType { kFloat = 1, kInt64 = 7, kBool = 9, kFloat16 = 10, kBFloat16 = 16 };
// Returns the type in ONNX of fp32, bf16 or fp16.
OnnxType onnx_type(DType dtype);

struct OnnxAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::vector<std::int64_t>> value;
};

// One operation. It comes after those whose outputs it reads.
struct OnnxNode {
  std::string operation;  // "Gemm"
  std::string name;
  std::vector<std::string> inputs, outputs;  // names of values; an input that is not there is empty
  std::vector<OnnxAttribute> attributes = {};
};

// An input or an output. A dimension that follows from the input has a name.
struct OnnxValue {
  std::string name;
  OnnxType type;
  std::vector<std::variant<std::int64_t, std::string>> shape;
};

// A tensor whose elements stand in the graph.
struct OnnxConstant {
  std::string name;
  OnnxType type;
  std::vector<std::int64_t> shape;
  std::string bytes;  // row-major, little-endian
};

// A model whose weights lie in a file of their own.
struct OnnxModel {
  std::vector<OnnxNode> nodes = {};
  std::vector<OnnxValue> inputs = {}, outputs = {};
  std::vector<OnnxConstant> constants = {};
  std::vector<ForeignTensor> weights = {};                         // in the order of the file
  DType dtype = DType::kF32;                                       // of the weights
  std::vector<std::pair<std::string, std::string>> metadata = {};  // names and texts
};

// Where the weights lie in their file. Large ones begin at multiples of a page, so that they can be
// mapped into memory.
struct OnnxPlaces {
  std::vector<std::int64_t> offsets;  // by weight, bytes
  std::int64_t bytes = 0;             // of the whole file
};
OnnxPlaces places_of_weights(const OnnxModel& model);

// Returns the bytes of the model's file. Its weights lie in the file `data` beside it.
std::string encoded(const OnnxModel& model, const std::string& data);

}  // namespace trireme::models

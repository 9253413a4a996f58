// The messages of ONNX in the encoding of protocol buffers (https://protobuf.dev), whose fields are
// written in the order of their numbers, as that library does. Numbers and names of the fields are
// those of ONNX's onnx.proto.
#include <bit>
#include <span>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/rounding.h"
#include "trireme/models/onnx.h"

namespace trireme::models {
namespace {

constexpr std::int64_t kIrVersion = 8;         // of ONNX 1.12
constexpr std::int64_t kPage = 4096;           // bytes
constexpr std::int64_t kSmallAlignment = 64;   // bytes, of weights below a page
constexpr std::int64_t kExternalLocation = 1;  // TensorProto.DataLocation

class Message {
 public:
  void integer(int field, std::int64_t value) {
    tag(field, 0);
    varint(static_cast<std::uint64_t>(value));
  }
  void number(int field, float value) {
    tag(field, 5);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int i = 0; i < 4; ++i) bytes_ += static_cast<char>((bits >> (8 * i)) & 0xff);
  }
  void text(int field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_ += value;
  }
  void message(int field, const Message& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, unsigned wire) { varint(static_cast<unsigned>(field) << 3 | wire); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7f) | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// StringStringEntryProto.
Message entry(std::string_view key, std::string_view value) {
  Message message;
  message.text(1, key);
  message.text(2, value);
  return message;
}

// AttributeProto; its field 20 says which field holds the value.
Message attribute_message(const OnnxAttribute& attribute) {
  constexpr int kFloat = 1, kInt = 2, kInts = 7;
  Message message;
  message.text(1, attribute.name);
  if (const auto* number = std::get_if<float>(&attribute.value)) {
    message.number(2, *number);
    message.integer(20, kFloat);
  } else if (const auto* integer = std::get_if<std::int64_t>(&attribute.value)) {
    message.integer(3, *integer);
    message.integer(20, kInt);
  } else {
    for (const std::int64_t each : std::get<std::vector<std::int64_t>>(attribute.value)) {
      message.integer(8, each);
    }
    message.integer(20, kInts);
  }
  return message;
}

// NodeProto.
Message node_message(const OnnxNode& node) {
  Message message;
  for (const std::string& input : node.inputs) message.text(1, input);
  for (const std::string& output : node.outputs) message.text(2, output);
  message.text(3, node.name);
  message.text(4, node.operation);
  for (const OnnxAttribute& attribute : node.attributes) {
    message.message(5, attribute_message(attribute));
  }
  return message;
}

// ValueInfoProto, with a TypeProto of a tensor and its TensorShapeProto.
Message value_message(const OnnxValue& value) {
  Message shape, tensor, type, message;
  for (const auto& extent : value.shape) {
    Message dimension;
    if (const auto* known = std::get_if<std::int64_t>(&extent)) {
      dimension.integer(1, *known);
    } else {
      dimension.text(2, std::get<std::string>(extent));
    }
    shape.message(1, dimension);
  }
  tensor.integer(1, static_cast<int>(value.type));
  tensor.message(2, shape);
  type.message(1, tensor);
  message.text(1, value.name);
  message.message(2, type);
  return message;
}

// The first fields of a TensorProto.
Message tensor_message(std::span<const std::int64_t> shape, OnnxType type,
                       const std::string& name) {
  Message message;
  for (const std::int64_t extent : shape) message.integer(1, extent);
  message.integer(2, static_cast<int>(type));
  message.text(8, name);
  return message;
}

Message constant_message(const OnnxConstant& constant) {
  Message message = tensor_message(constant.shape, constant.type, constant.name);
  message.text(9, constant.bytes);
  return message;
}

std::int64_t weight_bytes(const OnnxModel& model, const ForeignTensor& weight) {
  return weight.shape.elements() * static_cast<std::int64_t>(size_of(model.dtype));
}

Message weight_message(const OnnxModel& model, const ForeignTensor& weight, std::int64_t offset,
                       const std::string& data) {
  Message message = tensor_message(weight.shape.extents(), onnx_type(model.dtype), weight.name);
  message.message(13, entry("location", data));
  message.message(13, entry("offset", fmt::format("{}", offset)));
  message.message(13, entry("length", fmt::format("{}", weight_bytes(model, weight))));
  message.integer(14, kExternalLocation);
  return message;
}

// GraphProto.
Message graph_message(const OnnxModel& model, const std::string& data) {
  const OnnxPlaces places = places_of_weights(model);
  Message message;
  for (const OnnxNode& node : model.nodes) message.message(1, node_message(node));
  message.text(2, "trireme");
  for (std::size_t i = 0; i < model.weights.size(); ++i) {
    message.message(5, weight_message(model, model.weights[i], places.offsets[i], data));
  }
  for (const OnnxConstant& constant : model.constants) {
    message.message(5, constant_message(constant));
  }
  for (const OnnxValue& input : model.inputs) message.message(11, value_message(input));
  for (const OnnxValue& output : model.outputs) message.message(12, value_message(output));
  return message;
}

}  // namespace

OnnxType onnx_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return OnnxType::kFloat;
    case DType::kBF16:
      return OnnxType::kBFloat16;
    case DType::kF16:
      return OnnxType::kFloat16;
    default:
      throw InternalError("weights for ONNX are fp32, bf16 or fp16");
  }
}

OnnxPlaces places_of_weights(const OnnxModel& model) {
  OnnxPlaces places;
  for (const ForeignTensor& weight : model.weights) {
    const std::int64_t bytes = weight_bytes(model, weight);
    const std::int64_t at = rounded_up(places.bytes, bytes < kPage ? kSmallAlignment : kPage);
    places.offsets.push_back(at);
    places.bytes = at + bytes;
  }
  return places;
}

// ModelProto.
std::string encoded(const OnnxModel& model, const std::string& data) {
  Message operators, message;  // OperatorSetIdProto; no domain means the standard one
  operators.integer(2, kOnnxOperators);
  message.integer(1, kIrVersion);
  message.text(2, "trireme");
  message.message(7, graph_message(model, data));
  message.message(8, operators);
  for (const auto& [name, text] : model.metadata) message.message(14, entry(name, text));
  return message.bytes();
}

}  // namespace trireme::models

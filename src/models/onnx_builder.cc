#include "models/onnx_builder.h"

#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"

namespace trireme::models {
namespace {

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Operations with the same text do the same.
std::string operation_text(const std::string& operation, const std::vector<std::string>& inputs,
                           const std::vector<OnnxAttribute>& attributes, std::size_t outputs) {
  std::string text = fmt::format("{} {} {}", operation, outputs, fmt::join(inputs, " "));
  for (const OnnxAttribute& attribute : attributes) {
    text += fmt::format(" {}=", attribute.name);
    if (const auto* number = std::get_if<float>(&attribute.value)) {
      text += fmt::format("{}f", *number);
    } else if (const auto* integer = std::get_if<std::int64_t>(&attribute.value)) {
      text += fmt::format("{}", *integer);
    } else {
      text += fmt::format("{}", std::get<std::vector<std::int64_t>>(attribute.value));
    }
  }
  return text;
}

// Whether a matrix is (columns, rows) in the other program's file.
bool is_transposed(const ForeignTensor& tensor) {
  const ForeignPart& part = tensor.parts.front();
  if (part.shape.rank() != 2 || tensor.shape.rank() != 2) return false;
  return part.strides[1] != 1 || tensor.shape[1] != part.shape[1];
}

}  // namespace

OnnxBuilder::OnnxBuilder(std::optional<ForeignModel> foreign, DType dtype)
    : foreign_(std::move(foreign)) {
  model_.dtype = dtype;
  if (!foreign_) return;
  for (std::size_t i = 0; i < foreign_->tensors.size(); ++i) {
    for (const ForeignPart& part : foreign_->tensors[i].parts) {
      foreign_of_[{part.ours, part.start.front()}] = i;
    }
  }
}

GraphValue OnnxBuilder::input(std::string name, OnnxType type, NamedExtents shape) {
  model_.inputs.push_back({name, type, std::move(shape)});
  return name;
}

GraphValue OnnxBuilder::apply(const std::string& operation, std::vector<GraphValue> inputs,
                              Attributes attributes) {
  return apply_many(operation, std::move(inputs), std::move(attributes), 1).front();
}

std::vector<GraphValue> OnnxBuilder::apply_many(const std::string& operation,
                                                std::vector<GraphValue> inputs,
                                                Attributes attributes, std::size_t outputs) {
  const std::string text = operation_text(operation, inputs, attributes, outputs);
  if (const auto found = applied_.find(text); found != applied_.end()) return found->second;
  OnnxNode node{.operation = operation,
                .name = fmt::format("{}/{}.{}", scope_, operation, model_.nodes.size()),
                .inputs = std::move(inputs),
                .outputs = {},
                .attributes = std::move(attributes)};
  for (std::size_t i = 0; i < outputs; ++i) {
    node.outputs.push_back(outputs == 1 ? node.name + ".output"
                                        : fmt::format("{}.output.{}", node.name, i));
  }
  model_.nodes.push_back(std::move(node));
  return applied_[text] = model_.nodes.back().outputs;
}

OnnxModel OnnxBuilder::finish(const GraphValue& last, std::string output, NamedExtents shape) {
  TRIREME_CHECK(model_.nodes.back().outputs == std::vector{last},
                "the model's output is not the last operation's");
  model_.nodes.back().outputs = {output};
  model_.outputs.push_back({std::move(output), OnnxType::kFloat, std::move(shape)});
  return std::move(model_);
}

GraphValue OnnxBuilder::constant(OnnxType type, const GraphExtents& shape, std::string bytes) {
  const std::string text = fmt::format("{} {} ", static_cast<int>(type), shape) + bytes;
  const auto [found, is_new] =
      constants_.emplace(text, fmt::format("/constant.{}", constants_.size()));
  if (is_new) model_.constants.push_back({found->second, type, shape, std::move(bytes)});
  return found->second;
}

GraphValue OnnxBuilder::number(float value) {
  return constant(OnnxType::kFloat, {}, bytes_of_values<float>({value}));
}

GraphValue OnnxBuilder::integer(std::int64_t value) {
  return constant(OnnxType::kInt64, {}, bytes_of_values<std::int64_t>({value}));
}

GraphValue OnnxBuilder::numbers(const std::vector<float>& values) {
  return constant(OnnxType::kFloat, {std::ssize(values)}, bytes_of_values(values));
}

GraphValue OnnxBuilder::integers(const GraphExtents& values) {
  return constant(OnnxType::kInt64, {std::ssize(values)}, bytes_of_values(values));
}

OnnxBuilder::Held OnnxBuilder::hold(const std::string& ours, const Shape& shape, std::int64_t row) {
  ForeignTensor tensor;
  if (!foreign_) {
    TRIREME_CHECK(ours.starts_with("parameters/"), "states have names of other programs");
    const std::string name = ours.substr(ours.find('/') + 1);
    tensor = same_tensor(name, name, shape);
  } else {
    const auto found = foreign_of_.find({ours, row});
    TRIREME_CHECK(found != foreign_of_.end(), "other programs have no name for " + ours);
    tensor = foreign_->tensors[found->second];
  }
  const bool transposed = is_transposed(tensor);
  const std::size_t parts = tensor.parts.size();
  for (const ForeignPart& part : tensor.parts) {
    TRIREME_CHECK(part.ours != ours || part.shape == shape, ours + " has another shape");
  }
  const auto [place, is_new] = weights_.emplace(tensor.name, model_.weights.size());
  if (is_new) model_.weights.push_back(std::move(tensor));
  return {place->second, parts, transposed};
}

GraphValue OnnxBuilder::in_fp32(const GraphValue& held) {
  if (model_.dtype == DType::kF32) return held;
  return cast(held, OnnxType::kFloat);
}

GraphValue OnnxBuilder::parameter(const std::string& ours, const Shape& shape) {
  const Held held = hold("parameters/" + ours, shape, 0);
  TRIREME_CHECK(held.parts == 1 && !held.transposed, ours + " lies in another tensor");
  return in_fp32(model_.weights[held.weight].name);
}

GraphValue OnnxBuilder::state_row(const std::string& ours, const Shape& shape, std::int64_t row) {
  return in_fp32(model_.weights[hold("state/" + ours, shape, row).weight].name);
}

GraphValue OnnxBuilder::gather_rows(const std::string& ours, const Shape& shape,
                                    const GraphValue& indices) {
  const Held held = hold("parameters/" + ours, shape, 0);
  TRIREME_CHECK(held.parts == 1 && !held.transposed, ours + " lies in another tensor");
  return in_fp32(apply("Gather", {model_.weights[held.weight].name, indices}));
}

GraphValue OnnxBuilder::gemm(const GraphValue& x, const Held& weight, const GraphValue& bias) {
  std::vector<GraphValue> inputs = {x, in_fp32(model_.weights[weight.weight].name)};
  if (!bias.empty()) inputs.push_back(bias);
  Attributes attributes;
  if (!weight.transposed) attributes.push_back({"transB", std::int64_t{1}});
  return apply("Gemm", std::move(inputs), std::move(attributes));
}

GraphValue OnnxBuilder::linear(const GraphValue& x, const std::string& weight, const Shape& shape,
                               const std::string& bias) {
  const Held held = hold("parameters/" + weight, shape, 0);
  TRIREME_CHECK(held.parts == 1, weight + " lies beside others");
  return gemm(x, held, bias.empty() ? GraphValue() : parameter(bias, {shape[0]}));
}

std::vector<GraphValue> OnnxBuilder::linears(const GraphValue& x, const std::vector<Linear>& layers,
                                             bool bias) {
  const auto weight_name = [](const Linear& layer) { return layer.name + ".weight"; };
  const auto bias_name = [&](const Linear& layer) { return bias ? layer.name + ".bias" : ""; };
  const Linear& first = layers.front();
  const Held held = hold("parameters/" + weight_name(first), first.shape, 0);
  std::vector<GraphValue> results;
  if (held.parts == 1) {
    for (const Linear& layer : layers) {
      results.push_back(linear(x, weight_name(layer), layer.shape, bias_name(layer)));
    }
    return results;
  }
  TRIREME_CHECK(held.parts == layers.size(), first.name + " lies beside others");
  GraphExtents sizes;
  for (const Linear& layer : layers) sizes.push_back(layer.shape[0]);
  GraphValue all_biases;
  if (bias) {
    const Held biases = hold("parameters/" + bias_name(first), {first.shape[0]}, 0);
    TRIREME_CHECK(biases.parts == layers.size(), first.name + ".bias lies elsewhere");
    all_biases = in_fp32(model_.weights[biases.weight].name);
  }
  return apply_many("Split", {gemm(x, held, all_biases), integers(sizes)},
                    {{"axis", std::int64_t{1}}}, layers.size());
}

}  // namespace trireme::models

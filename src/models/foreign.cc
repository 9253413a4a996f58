#include "trireme/models/foreign.h"

#include "trireme/base/error.h"

namespace trireme::models {
namespace {

std::vector<std::int64_t> row_major(const Shape& shape) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(shape.rank()), 1);
  for (std::size_t d = strides.size(); d-- > 1;) {
    strides[d - 1] = strides[d] * shape[static_cast<int>(d)];
  }
  return strides;
}

ForeignPart whole_parameter(const std::string& parameter, const Shape& shape, std::int64_t offset,
                            std::vector<std::int64_t> strides) {
  return {.ours = "parameters/" + parameter,
          .shape = shape,
          .start = std::vector<std::int64_t>(static_cast<std::size_t>(shape.rank()), 0),
          .extent = shape,
          .offset = offset,
          .strides = std::move(strides)};
}

}  // namespace

ForeignTensor same_tensor(std::string name, const std::string& parameter, const Shape& shape) {
  return reshaped_tensor(std::move(name), parameter, shape, shape);
}

void add_same_layer(std::vector<ForeignTensor>& tensors, const std::string& name,
                    const std::string& ours, const Shape& weight, bool bias) {
  tensors.push_back(same_tensor(name + ".weight", ours + ".weight", weight));
  if (bias) tensors.push_back(same_tensor(name + ".bias", ours + ".bias", {weight[0]}));
}

ForeignTensor reshaped_tensor(std::string name, const std::string& parameter, const Shape& shape,
                              const Shape& theirs) {
  TRIREME_CHECK(shape.elements() == theirs.elements(), "a reshaped tensor keeps its elements");
  return {std::move(name), theirs, {whole_parameter(parameter, shape, 0, row_major(shape))}};
}

ForeignTensor transposed_tensor(std::string name, const std::string& parameter,
                                const Shape& shape) {
  return fused_transposed(std::move(name), {parameter}, {shape});
}

ForeignTensor convolution_tensor(std::string name, const std::string& parameter,
                                 const Shape& shape) {
  TRIREME_CHECK(shape.rank() == 4, "the weight of a convolution has four dimensions");
  const Shape theirs = {shape[0], shape[3], shape[1], shape[2]};
  const std::vector<std::int64_t> at = row_major(theirs);
  return {std::move(name),
          theirs,
          {whole_parameter(parameter, shape, 0, {at[0], at[2], at[3], at[1]})}};
}

ForeignTensor state_row(std::string name, const std::string& state, const Shape& shape,
                        std::int64_t row) {
  const Shape theirs(shape.extents().subspan(1));
  ForeignPart part{.ours = "state/" + state,
                   .shape = shape,
                   .start = std::vector<std::int64_t>(static_cast<std::size_t>(shape.rank()), 0),
                   .extent = shape.with(0, 1),
                   .strides = row_major(shape)};
  part.start[0] = row;
  return {std::move(name), theirs, {std::move(part)}};
}

ForeignTensor fused_transposed(std::string name, const std::vector<std::string>& parameters,
                               const std::vector<Shape>& shapes) {
  std::int64_t rows = 0;
  for (const Shape& shape : shapes) rows += shape[0];
  const bool vector = shapes.front().rank() == 1;
  ForeignTensor tensor{.name = std::move(name),
                       .shape = vector ? Shape{rows} : Shape{shapes.front()[1], rows},
                       .parts = {}};
  std::int64_t before = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    std::vector<std::int64_t> strides = {1};
    if (!vector) strides.push_back(rows);
    tensor.parts.push_back(whole_parameter(parameters[i], shapes[i], before, std::move(strides)));
    before += shapes[i][0];
  }
  return tensor;
}

}  // namespace trireme::models

// How families write their models as graphs of ONNX.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/models/onnx.h"

namespace trireme::models {

using GraphValue = std::string;  // the name of a value
using GraphExtents = std::vector<std::int64_t>;

// Adds operations one by one. A family asks for weights by our names. What other programs call them
// and how they lie in their files is looked up in the ForeignModel. An operation that was added
// already is not added again.
class OnnxBuilder {
 public:
  using Attributes = std::vector<OnnxAttribute>;
  using NamedExtents = std::vector<std::variant<std::int64_t, std::string>>;

  // Without `foreign` the weights have our names and layouts. `dtype`: of the weights in the file;
  // the graph computes in fp32.
  OnnxBuilder(std::optional<ForeignModel> foreign, DType dtype);

  // The names of operations begin with it from now on: "blocks.0.attention".
  void enter(std::string scope) { scope_ = std::move(scope); }

  GraphValue input(std::string name, OnnxType type, NamedExtents shape);
  GraphValue apply(const std::string& operation, std::vector<GraphValue> inputs,
                   Attributes attributes = {});
  // The same with several outputs.
  std::vector<GraphValue> apply_many(const std::string& operation, std::vector<GraphValue> inputs,
                                     Attributes attributes, std::size_t outputs);
  // Names the model's output, fp32, which is that of the last operation that was added.
  OnnxModel finish(const GraphValue& last, std::string output, NamedExtents shape);

  // Constants: a number, and vectors.
  GraphValue number(float value);
  GraphValue integer(std::int64_t value);
  GraphValue numbers(const std::vector<float>& values);
  GraphValue integers(const GraphExtents& values);

  // Our parameter of that name and shape.
  GraphValue parameter(const std::string& ours, const Shape& shape);
  // Row `row` of our state of that name and shape.
  GraphValue state_row(const std::string& ours, const Shape& shape, std::int64_t row);
  // Rows of our parameter (rows, width): (the shape of the indices, width).
  GraphValue gather_rows(const std::string& ours, const Shape& shape, const GraphValue& indices);

  // x (rows, in) -> (rows, out): x times the transpose of our parameter (out, in), plus a bias.
  GraphValue linear(const GraphValue& x, const std::string& weight, const Shape& shape,
                    const std::string& bias = "");
  // Linear layers NAME.weight and perhaps NAME.bias of the same input. Where another program keeps
  // them as one, they are one product.
  struct Linear {
    std::string name;
    Shape shape;  // (out, in)
  };
  std::vector<GraphValue> linears(const GraphValue& x, const std::vector<Linear>& layers,
                                  bool bias);

  GraphValue reshape(const GraphValue& x, const GraphExtents& shape) {
    return apply("Reshape", {x, integers(shape)});
  }
  GraphValue cast(const GraphValue& x, OnnxType type) {
    return apply("Cast", {x}, {{"to", static_cast<std::int64_t>(type)}});
  }
  GraphValue transpose(const GraphValue& x, const GraphExtents& order) {
    return apply("Transpose", {x}, {{"perm", order}});
  }

 private:
  // A weight as it lies in the file.
  struct Held {
    std::size_t weight;  // in OnnxModel::weights
    std::size_t parts;   // our tensors that it consists of
    bool transposed;     // (in, out), where ours is (out, in)
  };
  Held hold(const std::string& ours, const Shape& shape, std::int64_t row);
  GraphValue in_fp32(const GraphValue& held);
  GraphValue constant(OnnxType type, const GraphExtents& shape, std::string bytes);
  GraphValue gemm(const GraphValue& x, const Held& weight, const GraphValue& bias);

  OnnxModel model_;
  std::optional<ForeignModel> foreign_;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> foreign_of_;  // by our name and row
  std::map<std::string, std::size_t> weights_;              // held ones by their names
  std::map<std::string, GraphValue> constants_;             // by what is in them
  std::map<std::string, std::vector<GraphValue>> applied_;  // by operation, inputs, attributes
  std::string scope_;
};

}  // namespace trireme::models

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

// Adds operations one by one. A family asks for weights by our names. What other programs call them
// and how they lie in their files is looked up in the ForeignModel. An operation that was added
// already is not added again.
class OnnxBuilder {
 public:
  using Value = std::string;
  using Attributes = std::vector<OnnxAttribute>;
  using Extents = std::vector<std::int64_t>;
  using NamedExtents = std::vector<std::variant<std::int64_t, std::string>>;

  // Without `foreign` the weights have our names and layouts. `dtype`: of the weights in the file;
  // the graph computes in fp32.
  OnnxBuilder(std::optional<ForeignModel> foreign, DType dtype);

  // The names of operations begin with it from now on: "blocks.0.attention".
  void enter(std::string scope) { scope_ = std::move(scope); }

  Value input(std::string name, OnnxType type, NamedExtents shape);
  Value apply(const std::string& operation, std::vector<Value> inputs, Attributes attributes = {});
  // The same with several outputs.
  std::vector<Value> apply_many(const std::string& operation, std::vector<Value> inputs,
                                Attributes attributes, std::size_t outputs);
  // Names the last operation's output, which is fp32.
  OnnxModel finish(std::string output, NamedExtents shape);

  // Constants: a number, and vectors.
  Value number(float value);
  Value integer(std::int64_t value);
  Value numbers(const std::vector<float>& values);
  Value integers(const Extents& values);

  // Our parameter of that name and shape.
  Value parameter(const std::string& ours, const Shape& shape);
  // Row `row` of our state of that name and shape.
  Value state_row(const std::string& ours, const Shape& shape, std::int64_t row);
  // Rows of our parameter (rows, width): (the shape of the indices, width).
  Value gather_rows(const std::string& ours, const Shape& shape, const Value& indices);

  // x (rows, in) -> (rows, out): x times the transpose of our parameter (out, in), plus a bias.
  Value linear(const Value& x, const std::string& weight, const Shape& shape,
               const std::string& bias = "");
  // Linear layers NAME.weight and perhaps NAME.bias of the same input. Where another program keeps
  // them as one, they are one product.
  struct Linear {
    std::string name;
    Shape shape;  // (out, in)
  };
  std::vector<Value> linears(const Value& x, const std::vector<Linear>& layers, bool bias);

  Value reshape(const Value& x, const Extents& shape) {
    return apply("Reshape", {x, integers(shape)});
  }
  Value transpose(const Value& x, const Extents& order) {
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
  Value in_fp32(const Value& held);
  Value constant(OnnxType type, const Extents& shape, std::string bytes);
  Value gemm(const Value& x, const Held& weight, const Value& bias);

  OnnxModel model_;
  std::optional<ForeignModel> foreign_;
  std::map<std::pair<std::string, std::int64_t>, std::size_t> foreign_of_;  // by our name and row
  std::map<std::string, std::size_t> weights_;         // held ones by their names
  std::map<std::string, Value> constants_;             // by what is in them
  std::map<std::string, std::vector<Value>> applied_;  // by operation, inputs, attributes
  std::string scope_;
};

}  // namespace trireme::models

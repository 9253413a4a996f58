// Trainable tensors: their names, and the part of each that this rank holds.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/name_patterns.h"
#include "trireme/nn/flat_group.h"

namespace trireme::nn {

// How a parameter gets its initial values. They depend on the seed, the name and the global index
// alone, so they are the same on every grid.
struct Initializer {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  float value = 0.0f;  // the constant, the standard deviation, or the bound

  static Initializer constant(float value) { return {Kind::kConstant, value}; }
  static Initializer normal(float deviation) { return {Kind::kNormal, deviation}; }
  static Initializer uniform(float bound) { return {Kind::kUniform, bound}; }  // (-bound, bound]
};

// The ranks of this model replica that hold the same slice.
struct Holders {
  Span ranks;  // may be one rank
  // Each holder's gradient is a partial sum. Partial sums are added up over the holders after the
  // reduction over the data dimension.
  bool partial = false;
};

struct ParameterSpec {
  std::string name;  // global: "blocks.3.attention.query.weight"
  Placement placement;
  Initializer initial;
  Holders holders;
  bool decay = true;  // weight decay applies; false for norms and biases
  // A matrix of a product inside of the model (of a convolution: (out, all else)), and not a table,
  // the last product before the loss, a depthwise kernel or a vector.
  bool inner_matrix = false;
  // Products alone make its gradient, and ask take_beta: the first may overwrite what is there.
  bool overwrites = false;
  int heads = 1;        // its rows are those of so many attention heads, one head after the other
  bool shared = false;  // other blocks use it too; it gets a flat group of its own
  bool trains = true;   // false: frozen (ParameterSet::freeze)
};

class Parameter {
 public:
  // With `first` it is a further use of that parameter: it has the weights of `first`, and a
  // gradient and a group of its own.
  explicit Parameter(ParameterSpec spec, const Parameter* first = nullptr)
      : spec_(std::move(spec)), first_(first) {}

  const std::string& name() const { return spec_.name; }
  const Placement& placement() const { return spec_.placement; }
  const ParameterSpec& spec() const { return spec_; }
  bool trains() const { return spec_.trains; }

  // Compute type, local extents. Undefined while the group has released its weights.
  const Tensor& weight() const { return first_ ? first_->weight() : weight_; }
  // fp32, local extents. Contributions are added to it. Undefined if the stage does not train, or
  // the parameter is frozen.
  const Tensor& gradient() const { return gradient_; }
  // What the next product makes of the gradient that is there, the beta of ops::matmul. It is 1,
  // but 0 for the first one after FlatGroup::begin_gradients has left the memory as it was.
  float take_beta() const { return std::exchange(unwritten_, false) ? 0.0f : 1.0f; }
  // Writes zeros if that has been left, and no product has come.
  void write_gradient(ops::Context& ctx) const;
  FlatGroup& group() const { return *group_; }
  // Where it is on the grid. That is known once its group is formed.
  const Residence& residence() const { return residence_; }
  std::int64_t offset_in_group() const { return offset_; }  // elements
  const Parameter* first_use() const { return first_; }     // null: this one
  // The number of operations per micro-batch that contribute to the gradient: more than one if
  // several blocks share the parameter.
  int uses() const { return uses_; }
  void add_use() { ++uses_; }

 private:
  friend class FlatGroup;
  friend class ParameterSet;
  ParameterSpec spec_;
  const Parameter* first_;
  Residence residence_;
  FlatGroup* group_ = nullptr;
  std::int64_t offset_ = 0;
  int uses_ = 1;
  Tensor weight_, gradient_;
  mutable bool unwritten_ = false;  // the memory of the gradient is
};

// The parameters of a block, in the order in which they were declared. Parameters declared one
// after the other with equal `decay`, `shared` and `trains` lie one after the other in memory.
class ParameterSet {
 public:
  Parameter& add(ParameterSpec spec);
  // A further use of a parameter that another block has, in this one or another set.
  Parameter& add_use(ParameterSpec spec, const Parameter& first);
  // These lie one after the other in memory, for side_by_side_weight: all of them train, or none.
  void keep_together(const std::vector<Parameter*>& pack);
  // Freezes the parameters whose names match: their values stay as they are, and they have no
  // gradient. Call it before form_groups. Throws ConfigError if a pattern takes a part of what
  // keeps together.
  void freeze(const NamePatterns& frozen);
  // Forms the flat groups without allocating them. Call it once, after all parameters are declared.
  void form_groups(const std::string& block, const StateLayout& layout = {});

  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<FlatGroup>>& groups() const { return groups_; }
  // The groups of further uses: they have gradients alone, which are added to those of the group
  // that has the weights.
  const std::vector<std::unique_ptr<FlatGroup>>& uses_apart() const { return uses_apart_; }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<FlatGroup>> groups_, uses_apart_;
  std::vector<std::vector<Parameter*>> packs_;
};

// The packed matrix (sum of rows, columns) over parameters that lie one after the other in memory
// and have rows of equal length, such as query, key and value (packed QKV). Vectors give one
// vector. A view of the weights, or of the gradients; an undefined tensor where there are no
// parameters, or gradients of frozen ones are asked for. Throws InternalError if a parameter does
// not directly follow the one before it.
Tensor side_by_side_weight(const std::vector<Parameter*>& parameters);
Tensor side_by_side_gradient(const std::vector<Parameter*>& parameters);
// take_beta of all of them, to which the same products contribute.
float take_beta(const std::vector<Parameter*>& parameters);

}  // namespace trireme::nn

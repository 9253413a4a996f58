// Trainable tensors: their names, the part of each that this rank holds, and the flat memory that
// stores them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/ops/context.h"

namespace trireme::nn {

// The slice of a global tensor that this rank holds: a hyperrectangle, row-major. Memory may hold
// padding after the slice (local extents larger than the slice's); padding stays zero.
struct Placement {
  Shape global;                      // (out, in) for weights
  Shape local;                       // the slice in memory, with padding
  std::vector<std::int64_t> offset;  // of the slice in the global tensor
  Shape extent;                      // of the slice; extent[i] <= local[i]

  static Placement whole(const Shape& global);
  // Divides one dimension into `parts` equal ranges and returns the index-th. The last ranges may
  // be shorter or empty. Memory pads all ranges to the same extent, a multiple of `multiple`.
  static Placement split(const Shape& global, int dimension, int parts, int index,
                         std::int64_t multiple = 1);
};

// The type that parameters compute in, and whether they are trained.
struct ParameterUse {
  DType compute = DType::kF32;
  bool trains = true;  // false: no gradients
};

// How a parameter gets its initial values. They depend on the seed, the name and the global index
// alone, so they are the same on every grid.
struct Initializer {
  enum class Kind { kConstant, kNormal };
  Kind kind = Kind::kConstant;
  float value = 0.0f;  // the constant, or the standard deviation

  static Initializer constant(float value) { return {Kind::kConstant, value}; }
  static Initializer normal(float deviation) { return {Kind::kNormal, deviation}; }
};

// The ranks of this model replica that hold the same slice.
struct Copies {
  Communicator* holders = nullptr;  // those ranks; null if this rank is the only one. Not owned.
  // Each holder's gradient is a partial sum. Partial sums are added up over the holders before the
  // reduction over the data dimension.
  bool partial = false;

  // Whether this rank counts the slice in norms and checkpoints: the first holder does.
  bool counted() const { return holders == nullptr || holders->rank() == 0; }
};

struct ParameterSpec {
  std::string name;  // global: "blocks.3.attention.query.weight"
  Placement placement;
  Initializer initial;
  Copies copies;
  bool decay = true;  // weight decay applies; false for norms and biases
  bool tied = false;  // other blocks use it too; it gets a flat group of its own
};

class FlatGroup;

class Parameter {
 public:
  explicit Parameter(ParameterSpec spec) : spec_(std::move(spec)) {}

  const std::string& name() const { return spec_.name; }
  const Placement& placement() const { return spec_.placement; }
  const ParameterSpec& spec() const { return spec_; }

  const Tensor& weight() const { return weight_; }  // compute type, local extents
  // fp32, local extents. Contributions are added to it. Undefined if the stage does not train.
  const Tensor& gradient() const { return gradient_; }
  FlatGroup& group() const { return *group_; }
  std::int64_t offset_in_group() const { return offset_; }  // elements
  // The number of operations per micro-batch that contribute to the gradient: more than one if
  // several blocks share the parameter.
  int uses() const { return uses_; }
  void add_use() { ++uses_; }

 private:
  friend class FlatGroup;
  ParameterSpec spec_;
  FlatGroup* group_ = nullptr;
  std::int64_t offset_ = 0;
  int uses_ = 1;
  Tensor weight_, gradient_;
};

// Parameters of one block that are reduced, sharded and updated together. They lie contiguously in
// flat memory, one after the other.
class FlatGroup {
 public:
  FlatGroup(std::string name, std::vector<Parameter*> parameters);

  // Allocates the memory and gives the parameters their views. All values are zero. If the compute
  // type is fp32, weights and master values share memory. `gradients`: (elements) fp32; undefined
  // if the stage does not train.
  void materialize(ops::Context& ctx, const ParameterUse& use, const Tensor& gradients);

  // Fills in the initial values of a fresh model, on all threads of the rank. The bits do not
  // depend on the number of threads. Returns the number of random numbers drawn.
  std::int64_t draw_initial_values(ops::Context& ctx, std::uint64_t seed) const;

  const std::string& name() const { return name_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  bool decay() const { return parameters_.front()->spec().decay; }
  bool tied() const { return parameters_.front()->spec().tied; }
  std::int64_t elements() const { return elements_; }

  const Tensor& weights() const { return weights_; }      // (elements), compute type
  const Tensor& master() const { return master_; }        // (elements), fp32
  const Tensor& gradients() const { return gradients_; }  // (elements), fp32; or undefined
  // The parameter's part of a flat tensor of the group, in the parameter's local extents.
  Tensor view(const Tensor& flat, const Parameter& parameter) const;
  // Converts the master values to the weights' type. Call it after writing to the master values.
  void refresh_weights(ops::Context& ctx) const;

 private:
  std::string name_;
  std::vector<Parameter*> parameters_;
  std::int64_t elements_ = 0;
  Tensor weights_, master_, gradients_;
};

// The parameters of a block, in the order in which they were declared. Parameters declared one
// after the other with equal `decay` and `tied` lie one after the other in memory.
class ParameterSet {
 public:
  Parameter& add(ParameterSpec spec);
  // Forms the flat groups without allocating them. Call it once, after all parameters are declared.
  void form_groups(const std::string& block);

  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<FlatGroup>>& groups() const { return groups_; }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<FlatGroup>> groups_;
};

// The packed matrix (sum of rows, columns) over parameters that lie one after the other in memory
// and have rows of equal length, such as query, key and value (packed QKV). Vectors give one
// vector. A view of the weights, or of the gradients. Throws InternalError if a parameter does not
// directly follow the one before it.
Tensor side_by_side_weight(const std::vector<Parameter*>& parameters);
Tensor side_by_side_gradient(const std::vector<Parameter*>& parameters);

}  // namespace trireme::nn

// Trainable tensors: what they are called, which part of them is here, and the flat memory in which
// they lie.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/ops/context.h"

namespace trireme::nn {

// The part of a global tensor that lies on this rank: a hyperrectangle, row-major. Memory may hold
// padding rows behind it (local extents larger than the slice's); they stay zero.
struct Placement {
  Shape global;                      // (out, in) for weights
  Shape local;                       // as it lies in memory here
  std::vector<std::int64_t> offset;  // of the slice in the global tensor
  Shape extent;                      // of the slice; extent[i] <= local[i]

  static Placement whole(const Shape& global);
  // The index-th of `parts` equal ranges of one dimension; the last ones may be shorter or empty,
  // and are padded in memory.
  static Placement split(const Shape& global, int dimension, int parts, int index);
};

// What parameters are held for.
struct ParameterUse {
  DType compute = DType::kF32;
  bool trains = true;  // false: no gradients
};

// How a parameter gets its first values: from seed, name and global index, so equal on every grid.
struct Initializer {
  enum class Kind { kConstant, kNormal };
  Kind kind = Kind::kConstant;
  float value = 0.0f;  // the constant, or the standard deviation

  static Initializer constant(float value) { return {Kind::kConstant, value}; }
  static Initializer normal(float deviation) { return {Kind::kNormal, deviation}; }
};

// The ranks of this model replica that hold the same slice.
struct Copies {
  Communicator* holders = nullptr;  // those ranks, where they are several. Not owned.
  // Their gradients are partial sums of one another: added up before the data dimension is.
  bool partial = false;

  // The first of them counts the slice in norms and checkpoints.
  bool counted() const { return holders == nullptr || holders->rank() == 0; }
};

struct ParameterSpec {
  std::string name;  // global: "blocks.3.attention.query.weight"
  Placement placement;
  Initializer initial;
  Copies copies;
  bool decay = true;  // weight decay applies: not for norms and biases
  bool tied = false;  // another block uses it too: a flat group of its own
};

class FlatGroup;

class Parameter {
 public:
  explicit Parameter(ParameterSpec spec) : spec_(std::move(spec)) {}

  const std::string& name() const { return spec_.name; }
  const Placement& placement() const { return spec_.placement; }
  const ParameterSpec& spec() const { return spec_; }

  const Tensor& weight() const { return weight_; }  // compute type, local extents
  // fp32, local extents; contributions add up. Undefined where nothing trains.
  const Tensor& gradient() const { return gradient_; }
  FlatGroup& group() const { return *group_; }
  std::int64_t offset_in_group() const { return offset_; }  // elements
  // Operations of a micro-batch that contribute to the gradient: more than one where blocks share
  // it.
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

// Parameters of one block that are reduced, sharded and updated together, one behind the other in
// flat memory.
class FlatGroup {
 public:
  FlatGroup(std::string name, std::vector<Parameter*> parameters);

  // Allocates and gives the parameters their views. All values are zero. fp32 compute shares weights
  // and master values. `gradients`: (elements) fp32; undefined where nothing trains.
  void materialize(ops::Context& ctx, const ParameterUse& use, const Tensor& gradients);

  // Fills in the initial values of a fresh model, on all threads of the rank: the same bits with
  // any number of them. Returns how many random numbers it drew.
  std::int64_t draw_initial_values(ops::Context& ctx, std::uint64_t seed) const;

  const std::string& name() const { return name_; }
  const std::vector<Parameter*>& parameters() const { return parameters_; }
  bool decay() const { return parameters_.front()->spec().decay; }
  bool tied() const { return parameters_.front()->spec().tied; }
  std::int64_t elements() const { return elements_; }

  const Tensor& weights() const { return weights_; }      // (elements), compute type
  const Tensor& master() const { return master_; }        // (elements), fp32
  const Tensor& gradients() const { return gradients_; }  // (elements), fp32; or undefined
  // This parameter's part of a flat tensor of the group, as its local extents.
  Tensor view(const Tensor& flat, const Parameter& parameter) const;
  // Master values to compute type, after the master values were read from elsewhere.
  void refresh_weights(ops::Context& ctx) const;

 private:
  std::string name_;
  std::vector<Parameter*> parameters_;
  std::int64_t elements_ = 0;
  Tensor weights_, master_, gradients_;
};

// The parameters of a block, in the order of their declaration: those declared one after the other
// with equal decay lie side by side.
class ParameterSet {
 public:
  Parameter& add(ParameterSpec spec);
  // Forms the flat groups, without memory. Called once, when all parameters are declared.
  void form_groups(const std::string& block);

  const std::vector<std::unique_ptr<Parameter>>& parameters() const { return parameters_; }
  const std::vector<std::unique_ptr<FlatGroup>>& groups() const { return groups_; }

 private:
  std::vector<std::unique_ptr<Parameter>> parameters_;
  std::vector<std::unique_ptr<FlatGroup>> groups_;
};

// One matrix over parameters that lie side by side with equal row length: query, key and value,
// say. (sum of rows, columns); of the weights, or of the gradients.
Tensor side_by_side_weight(const std::vector<Parameter*>& parameters);
Tensor side_by_side_gradient(const std::vector<Parameter*>& parameters);

}  // namespace trireme::nn

#include "models/plan_costs.h"

#include <map>

#include "trireme/comm/dry_rank.h"
#include "trireme/nn/host_micro_batch.h"
#include "trireme/ops/operation_counts.h"

namespace trireme::models {
namespace {

// Builds blocks as a stage of one rank does, and runs each by itself.
class DryBlocks {
 public:
  DryBlocks(std::int64_t length, const std::vector<SampleField>& sample)
      : ctx_(ops::make_counting_context()), grid_(rank_, {}), length_(length) {
    nn::HostMicroBatch host(ctx_, 1, length);
    for (const SampleField& field : sample) host.add(ctx_, field.name, field.shape, field.dtype);
    batch_ = host.to_device(ctx_, length, true);
  }

  // `before` is the block that comes before it; null for the first.
  void count(nn::BlockPlan& block, const nn::BlockPlan* before) {
    const nn::Block& built = *blocks_.emplace_back(block.build(build_));
    block.parameters = 0;
    for (const auto& parameter : built.parameters().parameters()) {
      const std::int64_t elements = parameter->placement().global.elements();
      (parameter->spec().shared ? shared_ : block.parameters) += elements;
    }
    block.states = 0;
    for (const auto& state : built.states().states()) {
      block.states += state->spec().shape.elements();
    }
    materialize(block.name);
    nn::Tape tape(ctx_, false);
    nn::Values in;
    if (before != nullptr) in = handed_on(tape, *before);
    *ctx_.dry = {};
    built.forward(tape, batch_, std::move(in));
    const ops::OperationCount forward = ctx_.dry->total();
    block.flops = forward.flops;
    block.bytes = forward.bytes;
  }

  // Elements of the parameters that blocks share, each once.
  std::int64_t shared() const { return shared_; }

 private:
  void materialize(const std::string& block) {
    nn::ParameterSet& parameters = blocks_.back()->parameters();
    parameters.form_groups(block);
    for (const auto& group : parameters.groups()) {
      group->materialize(ctx_, {.trains = false}, Tensor());
    }
  }

  nn::Values handed_on(nn::Tape& tape, const nn::BlockPlan& before) {
    nn::Values values;
    for (const nn::BoundaryTensor& tensor : before.boundary(1, length_, {})) {
      const Tensor made = ctx_.allocate(tensor.shape, tensor.dtype.value_or(DType::kF32));
      values.push_back(tape.input(made, false));
    }
    return values;
  }

  ops::Context ctx_;
  DryRank rank_{DryRankOptions{}};
  ProcessGrid grid_;
  nn::BuildContext build_{.grid = grid_, .vocabulary_multiple = 1};
  std::int64_t length_;
  nn::MicroBatch batch_;
  std::vector<std::unique_ptr<nn::Block>> blocks_;  // what they share lives as long
  std::int64_t shared_ = 0;
};

}  // namespace

void count_costs(nn::ModelPlan& plan, const std::vector<SampleField>& sample) {
  DryBlocks blocks(plan.length, sample);
  std::map<std::string, const nn::BlockPlan*> kinds;  // the first block of each
  plan.parameters = 0;
  plan.flops_per_sample = 0.0;
  const nn::BlockPlan* before = nullptr;
  for (nn::BlockPlan& block : plan.blocks) {
    const nn::BlockPlan*& first = kinds[block.kind.empty() ? block.name : block.kind];
    if (first == nullptr) {
      blocks.count(block, before);
      first = &block;
    }
    block.flops = first->flops;
    block.bytes = first->bytes;
    block.parameters = first->parameters;
    block.states = first->states;
    plan.parameters += block.parameters;
    plan.flops_per_sample += 3.0 * block.flops;
    before = &block;
  }
  plan.parameters += blocks.shared();
}

}  // namespace trireme::models

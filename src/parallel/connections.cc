#include "trireme/parallel/connections.h"

#include <algorithm>
#include <map>
#include <vector>

#include "trireme/ops/elementwise.h"

namespace trireme::parallel {
namespace {

Tensor zeros(ops::Context& ctx, const nn::BoundaryTensor& like) {
  const Tensor made = ctx.allocate(like.shape, *like.dtype);
  ops::fill(ctx, made, 0.0f);
  return made;
}

// NCCL chooses an algorithm, and connects for it, by the size of a tensor: hence activations and
// the few numbers that the loss sums for each row.
void connect_tensor_ranks(ops::Context& ctx, const Stage& stage, std::int64_t batch,
                          std::int64_t length) {
  Communicator& comm = stage.grid().comm(Axis::kTensor);
  if (comm.size() == 1) return;
  for (const nn::BoundaryTensor& boundary : stage.whole_boundaries(batch, length)) {
    const Tensor all = zeros(ctx, boundary);
    if (stage.options().sequence_parallel) {
      const Tensor share = zeros(ctx, {{all.elements() / comm.size()}, boundary.dtype});
      comm.reduce_scatter(ctx.stream, all, share, ReduceOp::kSum).wait_on(ctx.stream);
      comm.all_gather(ctx.stream, share, all).wait_on(ctx.stream);
    } else {
      comm.all_reduce(ctx.stream, all, ReduceOp::kSum).wait_on(ctx.stream);
    }
  }
  const Tensor sums = zeros(ctx, {{batch * length}, DType::kF32});
  comm.all_reduce(ctx.stream, sums, ReduceOp::kSum).wait_on(ctx.stream);
}

void connect_stages(ops::Context& ctx, const Stage& stage, std::int64_t batch,
                    std::int64_t length) {
  Communicator& comm = stage.grid().comm(Axis::kPipeline);
  if (comm.size() == 1) return;
  // One message for each pair of stages and direction, however many chunks use it: that of the
  // first part whose output or its gradient goes there.
  const PipelineLayout& layout = stage.layout();
  std::map<int, int> receivers, senders;  // the part by stage
  for (int part = 1; part < layout.parts(); ++part) {
    const int producer = layout.stage_of(part - 1), consumer = layout.stage_of(part);
    if (producer == consumer) continue;
    const bool trains = stage.options().trains && part > stage.first_trained_part();
    if (producer == comm.rank()) receivers.emplace(consumer, part - 1);
    if (consumer == comm.rank()) senders.emplace(producer, part - 1);
    if (trains && consumer == comm.rank()) receivers.emplace(producer, part - 1);
    if (trains && producer == comm.rank()) senders.emplace(consumer, part - 1);
  }
  std::vector<Transfer> transfers;
  const auto add = [&](Transfer::Direction direction, int peer, int part) {
    for (const nn::BoundaryTensor& boundary : stage.boundary(part, batch, length)) {
      transfers.push_back({direction, peer, zeros(ctx, boundary)});
    }
  };
  for (const auto& [peer, part] : receivers) add(Transfer::Direction::kSend, peer, part);
  for (const auto& [peer, part] : senders) add(Transfer::Direction::kReceive, peer, part);
  comm.exchange(ctx.stream, std::move(transfers)).wait_on(ctx.stream);
}

// Blocks whose replicas compute together exchange a few numbers for each channel.
void connect_replicas(ops::Context& ctx, const Stage& stage) {
  Communicator* comm = stage.together_comm();
  if (comm == nullptr || comm->size() == 1) return;
  std::int64_t most = 0;
  for (const nn::State* state : stage.states().states()) {
    most = std::max(most, state->spec().shape.elements());
  }
  const Tensor mine = zeros(ctx, {{most}, DType::kF32});
  const Tensor all = zeros(ctx, {{most * comm->size()}, DType::kF32});
  comm->all_gather(ctx.stream, mine, all).wait_on(ctx.stream);
  comm->all_reduce(ctx.stream, mine, ReduceOp::kSum).wait_on(ctx.stream);
}

}  // namespace

std::size_t free_device_memory(const ops::Context& ctx) {
  ctx.allocator->give_back_reserve();
  return ctx.cuda->memory_info(ctx.device.index).free;
}

std::size_t connect_stage(ops::Context& ctx, const Stage& stage, std::int64_t batch,
                          std::int64_t length) {
  if (ctx.device.kind == DeviceKind::kCpu) return 0;
  const std::size_t before = free_device_memory(ctx);
  connect_tensor_ranks(ctx, stage, batch, length);
  connect_stages(ctx, stage, batch, length);
  connect_replicas(ctx, stage);
  const std::size_t after = free_device_memory(ctx);
  return before > after ? before - after : 0;
}

}  // namespace trireme::parallel

#include "trireme/parallel/connections.h"

#include <set>
#include <vector>

#include "trireme/nn/tensor_parallel.h"
#include "trireme/ops/elementwise.h"

namespace trireme::parallel {
namespace {

Tensor zeros(ops::Context& ctx, const Shape& shape, DType dtype) {
  const Tensor made = ctx.allocate(shape, dtype);
  ops::fill(ctx, made, 0.0f);
  return made;
}

// NCCL chooses an algorithm, and connects for it, by the size of a tensor: hence activations and
// the few numbers that the loss sums for each row.
void connect_tensor_ranks(ops::Context& ctx, const Stage& stage, std::int64_t rows) {
  Communicator& comm = stage.grid().comm(Axis::kTensor);
  if (comm.size() == 1) return;
  const nn::TensorParallel parallel{&comm, stage.options().sequence_parallel};
  const Tensor all = zeros(ctx, {rows, stage.width()}, stage.options().compute);
  if (parallel.splits_rows()) {
    const Tensor share = zeros(ctx, {parallel.outside_rows(rows), stage.width()}, all.dtype());
    comm.reduce_scatter(ctx.stream, all, share, ReduceOp::kSum).wait_on(ctx.stream);
    comm.all_gather(ctx.stream, share, all).wait_on(ctx.stream);
  } else {
    comm.all_reduce(ctx.stream, all, ReduceOp::kSum).wait_on(ctx.stream);
  }
  const Tensor sums = zeros(ctx, {rows}, DType::kF32);
  comm.all_reduce(ctx.stream, sums, ReduceOp::kSum).wait_on(ctx.stream);
}

void connect_stages(ops::Context& ctx, const Stage& stage, std::int64_t batch,
                    std::int64_t length) {
  Communicator& comm = stage.grid().comm(Axis::kPipeline);
  if (comm.size() == 1) return;
  // One message for each pair of stages and direction, however many chunks use it.
  const PipelineLayout& layout = stage.layout();
  std::set<int> receivers, senders;
  for (int part = 1; part < layout.parts(); ++part) {
    const int producer = layout.stage_of(part - 1), consumer = layout.stage_of(part);
    if (producer == consumer) continue;
    const bool trains = stage.options().trains;
    if (producer == comm.rank()) receivers.insert(consumer);
    if (consumer == comm.rank()) senders.insert(producer);
    if (trains && consumer == comm.rank()) receivers.insert(producer);
    if (trains && producer == comm.rank()) senders.insert(consumer);
  }
  std::vector<Transfer> transfers;
  const auto add = [&](Transfer::Direction direction, int peer) {
    for (const nn::BoundaryTensor& boundary : stage.boundary(batch, length)) {
      transfers.push_back({direction, peer, zeros(ctx, boundary.shape, boundary.dtype)});
    }
  };
  for (const int peer : receivers) add(Transfer::Direction::kSend, peer);
  for (const int peer : senders) add(Transfer::Direction::kReceive, peer);
  comm.exchange(ctx.stream, std::move(transfers)).wait_on(ctx.stream);
}

}  // namespace

std::size_t free_device_memory(const ops::Context& ctx) {
  ctx.allocator->give_back_reserve();
  return ctx.cuda->memory_info(ctx.device.index).free;
}

std::size_t connect_stage(ops::Context& ctx, const Stage& stage, std::int64_t batch,
                          std::int64_t length) {
  if (ctx.device.kind == DeviceKind::kCpu || stage.grid().comm(kModelAxes).size() == 1) return 0;
  const std::size_t before = free_device_memory(ctx);
  connect_tensor_ranks(ctx, stage, batch * length);
  connect_stages(ctx, stage, batch, length);
  const std::size_t after = free_device_memory(ctx);
  return before > after ? before - after : 0;
}

}  // namespace trireme::parallel

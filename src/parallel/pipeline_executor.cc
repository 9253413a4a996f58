#include "trireme/parallel/pipeline_executor.h"

#include <algorithm>
#include <deque>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/nn/block_run.h"
#include "trireme/parallel/partition.h"

namespace trireme::parallel {
namespace {

using Payload = PipelineMessage::Payload;

// What a stage keeps of a micro-batch in one of its chunks, from the forward to the end of the
// backward.
struct InFlight {
  Tensors input, output;  // at the chunk's boundaries
  Tensors input_gradient, output_gradient;
  Work input_arrives, gradient_arrives;
  std::deque<nn::BlockRun> runs;  // in the order of the blocks
};

// Neighbouring blocks [begin, end) of a chunk that compute as one.
struct Run {
  std::size_t begin, end;
  bool recomputed;  // in the backward, where the options say so
};

// The runs of each chunk of a stage.
std::vector<std::vector<Run>> runs_of(const Stage& stage, const RunOptions& options) {
  const PipelineLayout& layout = stage.layout();
  const std::vector<int> ends =
      ends_of_recomputed(stage.bounds(), layout, options.recomputed_blocks, stage.first_trained());
  std::vector<std::vector<Run>> chunks;
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    const int part = layout.part(stage.grid().index(Axis::kPipeline), chunk);
    const auto recomputed =
        static_cast<std::size_t>(ends[static_cast<std::size_t>(part)] - stage.first_block(chunk));
    const auto each = static_cast<std::size_t>(options.blocks);
    std::vector<Run>& runs = chunks.emplace_back();
    for (std::size_t i = 0; i < stage.blocks(chunk).size(); i = runs.back().end) {
      const bool again = i < recomputed;
      runs.push_back({i, again ? std::min(i + each, recomputed) : i + 1, again});
    }
  }
  return chunks;
}

// One pass of a stage over its micro-batches.
class Pass {
 public:
  // Without a listener it is a pass without a backward.
  Pass(ops::Context& ctx, const Stage& stage, const RunOptions& runs,
       std::span<const nn::MicroBatch> batches, nn::GradientListener* listener)
      : ctx_(ctx),
        stage_(stage),
        recompute_(runs.recompute),
        runs_(runs_of(stage, runs)),
        layout_(stage.layout()),
        here_(stage.grid().index(Axis::kPipeline)),
        batches_(batches),
        listener_(listener),
        live_(batches.size() * static_cast<std::size_t>(layout_.chunks)) {}

  void run(const std::vector<PipelineStep>& steps) {
    stage_.weights().begin_pass(uses_of(steps));
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const PipelineStep& step = steps[i];
      switch (step.kind) {
        case PipelineStep::Kind::kForward:
          forward(step);
          break;
        case PipelineStep::Kind::kBackwardInput: {
          const bool plain = i + 1 < steps.size() && is_plain_backward(step, steps[i + 1]);
          backward(step, /*defer_weights=*/!plain);
          if (plain) ++i;
          break;
        }
        case PipelineStep::Kind::kBackwardWeight:
          backward_weights(step);
          break;
        case PipelineStep::Kind::kExchange:
          exchange(step);
          break;
      }
    }
    // On a GPU the sends keep their tensors alive until they are done, and the host does not wait.
    if (ctx_.device.kind != DeviceKind::kCpu) return;
    for (const Work& work : sending_) work.wait_host();
  }

  // What the last block returned, for a pass without a backward.
  std::vector<Tensors> take_outputs() {
    std::vector<Tensors> outputs;
    for (int m = 0; m < static_cast<int>(batches_.size()); ++m) {
      outputs.push_back(std::move(at(m, layout_.chunks - 1).output));
    }
    return outputs;
  }

 private:
  InFlight& at(int micro_batch, int chunk) {
    return live_[static_cast<std::size_t>(micro_batch * layout_.chunks + chunk)];
  }
  InFlight& at(const PipelineStep& step) { return at(step.micro_batch, step.chunk); }
  // The micro-batch in the chunk that uses what part `producer` made of it, if that is on this
  // stage.
  InFlight* consumer(Payload payload, int micro_batch, int producer) {
    const int part = payload == Payload::kActivation ? producer + 1 : producer - 1;
    const bool here = part >= 0 && part < layout_.parts() && layout_.stage_of(part) == here_;
    return here ? &at(micro_batch, layout_.chunk_of(part)) : nullptr;
  }
  const nn::MicroBatch& batch(int micro_batch) const {
    return batches_[static_cast<std::size_t>(micro_batch)];
  }
  bool trains() const { return listener_ != nullptr; }
  // Whether blocks of a chunk, up to `end`, have a backward: the last of them, at least.
  bool has_backward(int chunk, std::size_t end) const {
    return trains() && stage_.first_block(chunk) + static_cast<int>(end) > stage_.first_trained();
  }
  const std::vector<Run>& runs(int chunk) const { return runs_[static_cast<std::size_t>(chunk)]; }
  // What a run of a chunk keeps.
  nn::BlockRun::Keep keep(int chunk, const Run& run) const {
    if (!trains()) return nn::BlockRun::Keep::kNothing;
    // The tape keeps nothing, but this is the forward in which states are proposed.
    if (!has_backward(chunk, run.end) || !run.recomputed) return nn::BlockRun::Keep::kTape;
    switch (recompute_) {
      case Recompute::kNone:
        return nn::BlockRun::Keep::kTape;
      case Recompute::kSelective:
        return nn::BlockRun::Keep::kSelective;
      case Recompute::kFull:
        break;
    }
    return nn::BlockRun::Keep::kInput;
  }

  FlightRecorder& recorder() const { return stage_.grid().runtime().recorder(); }

  // The weights that the steps use, in their order: forward and backward() alone compute with
  // weights, one run of blocks after the other.
  std::vector<ShardedWeights::Use> uses_of(const std::vector<PipelineStep>& steps) const {
    std::vector<ShardedWeights::Use> uses;
    for (const PipelineStep& step : steps) {
      const bool forward = step.kind == PipelineStep::Kind::kForward;
      if (!forward && step.kind != PipelineStep::Kind::kBackwardInput) continue;
      const std::vector<Run>& all = runs(step.chunk);
      for (std::size_t i = 0; i < all.size(); ++i) {
        const Run& run = all[forward ? i : all.size() - 1 - i];
        if (!forward && !has_backward(step.chunk, run.end)) continue;
        uses.push_back(stage_.used_by(step.chunk, run.begin, run.end));
      }
    }
    return uses;
  }

  void forward(const PipelineStep& step) {
    const FlightRecorder::Phase phase(recorder(), "forward", step.micro_batch);
    InFlight& live = at(step);
    live.input_arrives.wait_on(ctx_.stream);
    Tensors x = std::exchange(live.input, {});
    const nn::BlockSpan blocks = stage_.blocks(step.chunk);
    for (const Run& run : runs(step.chunk)) {
      nn::BlockRun& made = live.runs.emplace_back(
          ctx_, blocks.subspan(run.begin, run.end - run.begin), batch(step.micro_batch),
          keep(step.chunk, run), listener_, has_backward(step.chunk, run.begin));
      stage_.weights().begin_use(ctx_);
      x = made.forward(std::move(x));
      stage_.weights().end_use();
      if (!has_backward(step.chunk, run.end)) live.runs.clear();
    }
    if (trains() && live.runs.empty()) hold_back();
    InFlight* next =
        consumer(Payload::kActivation, step.micro_batch, layout_.part(here_, step.chunk));
    (next ? next->input : live.output) = std::move(x);
  }

  void backward(const PipelineStep& step, bool defer_weights) {
    const FlightRecorder::Phase phase(recorder(), "backward", step.micro_batch);
    InFlight& live = at(step);
    live.gradient_arrives.wait_on(ctx_.stream);
    Tensors dy = std::exchange(live.output_gradient, {});
    for (auto run = live.runs.rbegin(); run != live.runs.rend(); ++run) {
      stage_.weights().begin_use(ctx_);
      dy = run->backward(std::move(dy), defer_weights);
      stage_.weights().end_use();
    }
    if (!defer_weights) live.runs.clear();
    InFlight* before =
        consumer(Payload::kGradient, step.micro_batch, layout_.part(here_, step.chunk));
    (before ? before->output_gradient : live.input_gradient) = std::move(dy);
  }

  void backward_weights(const PipelineStep& step) {
    const FlightRecorder::Phase phase(recorder(), "backward", step.micro_batch);
    InFlight& live = at(step);
    for (auto run = live.runs.rbegin(); run != live.runs.rend(); ++run) run->backward_weights();
    live.runs.clear();
  }

  // No gradient that has yet to come holds back a stage without a backward, so its outputs would
  // pile up where the next stage is slower.
  void hold_back() {
    if (ctx_.device.kind != DeviceKind::kCpu) return;
    const auto most = static_cast<std::size_t>(2 * layout_.parts());
    for (; sending_.size() > most; sending_.pop_front()) sending_.front().wait_host();
  }

  InFlight& receiver(const PipelineMessage& message) {
    const int producer = layout_.part(message.peer, message.chunk);
    InFlight* live = consumer(message.payload, message.micro_batch, producer);
    TRIREME_CHECK(live != nullptr, "a message for another stage");
    return *live;
  }

  // Where transfers are independent of each other, each message is an exchange of its own, so that
  // a computation waits for its input alone.
  void exchange(const PipelineStep& step) {
    Communicator& comm = stage_.grid().comm(Axis::kPipeline);
    const bool together = comm.exchanges_in_order(ctx_.device.kind);
    std::vector<Transfer> transfers;
    std::vector<Work*> arrivals;  // that wait for them
    const auto post = [&] {
      if (transfers.empty()) return;
      const bool sends = transfers.front().direction == Transfer::Direction::kSend;
      const Work work = comm.exchange(ctx_.stream, std::exchange(transfers, {}));
      for (Work* arrival : std::exchange(arrivals, {})) *arrival = work;
      if (sends) sending_.push_back(work);
    };
    for (const PipelineMessage& message : step.sends) {
      add_send(message, transfers);
      if (!together) post();
    }
    for (const PipelineMessage& message : step.receives) {
      if (batch(message.micro_batch).empty()) continue;  // its run returns no tensors to send
      arrivals.push_back(&add_receive(message, transfers));
      if (!together) post();
    }
    post();
    std::erase_if(sending_, [](const Work& work) { return work.done(); });
  }

  // The receiver knows the plan alone, so what is sent must be what it says.
  void check_boundary(int part, const PipelineMessage& message, const Tensors& tensors) const {
    const nn::MicroBatch& of = batch(message.micro_batch);
    if (of.empty()) return;
    const auto is = [](const Tensor& tensor, const nn::BoundaryTensor& said) {
      return tensor.shape() == said.shape && tensor.dtype() == *said.dtype;
    };
    TRIREME_CHECK(
        std::ranges::equal(tensors, stage_.boundary(part, of.batch, of.length), is),
        fmt::format("part {} of the model returns other tensors than its plan says", part));
  }

  void add_send(const PipelineMessage& message, std::vector<Transfer>& transfers) {
    InFlight& live = at(message.micro_batch, message.chunk);
    const bool activation = message.payload == Payload::kActivation;
    Tensors& tensors = activation ? live.output : live.input_gradient;
    if (activation) check_boundary(layout_.part(here_, message.chunk), message, tensors);
    for (const Tensor& tensor : tensors) {
      transfers.push_back({Transfer::Direction::kSend, message.peer, tensor});
    }
    tensors.clear();  // the transfer owns them now
  }

  // Returns where the Work belongs.
  Work& add_receive(const PipelineMessage& message, std::vector<Transfer>& transfers) {
    InFlight& live = receiver(message);
    const nn::MicroBatch& of = batch(message.micro_batch);
    const bool activation = message.payload == Payload::kActivation;
    Tensors& tensors = activation ? live.input : live.output_gradient;
    const int sender = layout_.part(message.peer, message.chunk);
    const int part = activation ? sender : sender - 1;  // whose output it is, or its gradient
    for (const nn::BoundaryTensor& boundary : stage_.boundary(part, of.batch, of.length)) {
      tensors.push_back(ctx_.allocate(boundary.shape, *boundary.dtype));
      transfers.push_back({Transfer::Direction::kReceive, message.peer, tensors.back()});
    }
    return activation ? live.input_arrives : live.gradient_arrives;
  }

  ops::Context& ctx_;
  const Stage& stage_;
  Recompute recompute_;
  std::vector<std::vector<Run>> runs_;  // by chunk
  const PipelineLayout& layout_;
  int here_;
  std::span<const nn::MicroBatch> batches_;
  nn::GradientListener* listener_;
  std::vector<InFlight> live_;
  std::deque<Work> sending_;
};

}  // namespace

void PipelineExecutor::train(const PipelineSchedule& schedule,
                             std::span<const nn::MicroBatch> batches,
                             nn::GradientListener& listener) {
  TRIREME_CHECK(schedule.layout == stage_.layout(), "a schedule for another layout of the stages");
  TRIREME_CHECK(schedule.micro_batches == static_cast<int>(batches.size()),
                "a schedule for another number of micro-batches");
  Pass pass(ctx_, stage_, runs_, batches, &listener);
  pass.run(schedule.steps[static_cast<std::size_t>(stage_.grid().index(Axis::kPipeline))]);
}

std::vector<Tensors> PipelineExecutor::forward(std::span<const nn::MicroBatch> batches) {
  if (batches.empty()) return {};
  const int count = static_cast<int>(batches.size());
  const auto here = static_cast<std::size_t>(stage_.grid().index(Axis::kPipeline));
  auto made = forward_steps_.find(count);
  if (made == forward_steps_.end()) {
    PipelineSchedule schedule = forward_schedule(stage_.layout(), count);
    made = forward_steps_.emplace(count, std::move(schedule.steps[here])).first;
  }
  Pass pass(ctx_, stage_, runs_, batches, nullptr);
  pass.run(made->second);
  return pass.take_outputs();
}

}  // namespace trireme::parallel

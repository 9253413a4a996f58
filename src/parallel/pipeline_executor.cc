#include "trireme/parallel/pipeline_executor.h"

#include <algorithm>
#include <deque>
#include <optional>

namespace trireme::parallel {
namespace {

using Payload = PipelineMessage::Payload;

// What a stage keeps of a micro-batch from its forward to the end of its backward.
struct InFlight {
  Tensors input, output;  // at the stage's boundaries
  Tensors input_gradient, output_gradient;
  Work input_arrives, gradient_arrives;
  nn::Values input_values, output_values;
  std::optional<nn::Tape> tape;
};

Tensors tensors_of(const nn::Values& values) {
  Tensors tensors;
  for (const nn::Value& value : values) tensors.push_back(value.tensor());
  return tensors;
}

// One pass of a stage over its micro-batches.
class Pass {
 public:
  Pass(ops::Context& ctx, const Stage& stage, std::span<const nn::MicroBatch> batches,
       nn::GradientListener* listener)
      : ctx_(ctx), stage_(stage), batches_(batches), listener_(listener), live_(batches.size()) {}

  void run(const std::vector<PipelineStep>& steps) {
    for (const PipelineStep& step : steps) {
      switch (step.kind) {
        case PipelineStep::Kind::kForward:
          forward(step.micro_batch);
          break;
        case PipelineStep::Kind::kBackwardInput:
          backward_input(step.micro_batch);
          break;
        case PipelineStep::Kind::kBackwardWeight:
          backward_weight(step.micro_batch);
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

  // What the last block returned, for a pass without a tape.
  std::vector<nn::Values> take_outputs() {
    std::vector<nn::Values> outputs;
    for (InFlight& live : live_) outputs.push_back(std::move(live.output_values));
    return outputs;
  }

 private:
  InFlight& at(int micro_batch) { return live_[static_cast<std::size_t>(micro_batch)]; }

  FlightRecorder& recorder() const { return stage_.grid().runtime().recorder(); }

  void forward(int m) {
    const FlightRecorder::Phase phase(recorder(), "forward", m);
    InFlight& live = at(m);
    live.input_arrives.wait_on(ctx_.stream);
    live.tape.emplace(ctx_, listener_ != nullptr, listener_);
    live.input_values.clear();
    for (Tensor& tensor : live.input) {
      live.input_values.push_back(live.tape->input(std::move(tensor), true));
    }
    live.input.clear();
    live.output_values =
        stage_.forward(*live.tape, batches_[static_cast<std::size_t>(m)], live.input_values);
    if (!stage_.last()) live.output = tensors_of(live.output_values);
    if (listener_ == nullptr) live.tape.reset();
  }

  void backward_input(int m) {
    const FlightRecorder::Phase phase(recorder(), "backward", m);
    InFlight& live = at(m);
    live.gradient_arrives.wait_on(ctx_.stream);
    // The last stage's outputs are losses, which the tape holds itself.
    if (stage_.last()) live.output_values.clear();
    live.tape->backward(live.output_values, live.output_gradient, /*defer_weights=*/false);
    for (const nn::Value& value : live.input_values) {
      live.input_gradient.push_back(live.tape->gradient(value));
    }
    live.output_values.clear();
    live.output_gradient.clear();
  }

  void backward_weight(int m) {
    InFlight& live = at(m);
    live.tape->backward_weights();
    live.tape.reset();
    live.input_values.clear();
  }

  void exchange(const PipelineStep& step) {
    std::vector<Transfer> transfers;
    for (const PipelineMessage& message : step.sends) {
      InFlight& live = at(message.micro_batch);
      Tensors& tensors =
          message.payload == Payload::kActivation ? live.output : live.input_gradient;
      for (const Tensor& tensor : tensors) {
        transfers.push_back({Transfer::Direction::kSend, message.peer, tensor});
      }
      tensors.clear();  // the transfer owns them now
    }
    for (const PipelineMessage& message : step.receives) {
      const nn::MicroBatch& batch = batches_[static_cast<std::size_t>(message.micro_batch)];
      InFlight& live = at(message.micro_batch);
      Tensors& tensors =
          message.payload == Payload::kActivation ? live.input : live.output_gradient;
      for (const nn::BoundaryTensor& boundary : stage_.boundary(batch.batch, batch.length)) {
        tensors.push_back(ctx_.allocate(boundary.shape, boundary.dtype));
        transfers.push_back({Transfer::Direction::kReceive, message.peer, tensors.back()});
      }
    }
    const Work work =
        stage_.grid().comm(Axis::kPipeline).exchange(ctx_.stream, std::move(transfers));
    for (const PipelineMessage& message : step.receives) {
      InFlight& live = at(message.micro_batch);
      (message.payload == Payload::kActivation ? live.input_arrives : live.gradient_arrives) = work;
    }
    if (!step.sends.empty()) sending_.push_back(work);
    while (!sending_.empty() && sending_.front().done()) sending_.pop_front();
  }

  ops::Context& ctx_;
  const Stage& stage_;
  std::span<const nn::MicroBatch> batches_;
  nn::GradientListener* listener_;
  std::vector<InFlight> live_;
  std::deque<Work> sending_;
};

}  // namespace

void PipelineExecutor::train(const PipelineSchedule& schedule,
                             std::span<const nn::MicroBatch> batches,
                             nn::GradientListener& listener) {
  TRIREME_CHECK(schedule.micro_batches == static_cast<int>(batches.size()),
                "a schedule for another number of micro-batches");
  Pass pass(ctx_, stage_, batches, &listener);
  pass.run(schedule.steps[static_cast<std::size_t>(stage_.grid().index(Axis::kPipeline))]);
}

std::vector<nn::Values> PipelineExecutor::forward(std::span<const nn::MicroBatch> batches) {
  if (batches.empty()) return {};
  PipelineSchedule schedule =
      forward_schedule(stage_.grid().extent(Axis::kPipeline), static_cast<int>(batches.size()));
  Pass pass(ctx_, stage_, batches, nullptr);
  pass.run(schedule.steps[static_cast<std::size_t>(stage_.grid().index(Axis::kPipeline))]);
  return pass.take_outputs();
}

}  // namespace trireme::parallel

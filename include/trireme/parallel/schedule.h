// Pipeline schedules as data: what every stage computes and sends, in order. A schedule is a
// function of (stages, micro-batches); a checker proves it; one executor runs them all.
#pragma once

#include <string>
#include <vector>

namespace trireme::parallel {

// A value that crosses a stage boundary: the output of a micro-batch's forward, on its way to the
// next stage, or the gradient of a micro-batch's input, on its way to the stage before.
struct PipelineMessage {
  enum class Payload { kActivation, kGradient };
  Payload payload;
  int micro_batch;
  int chunk;  // of the stage that produced it
  int peer;   // the other stage: the receiver of a send, the sender of a receive

  bool operator==(const PipelineMessage&) const = default;
};

struct PipelineStep {
  enum class Kind {
    kForward,
    kBackwardInput,   // gradients of the activations; needs the forward of the same micro-batch
    kBackwardWeight,  // gradients of the weights; needs the backward-input of the same micro-batch
    kExchange,        // all sends and receives as one fused operation: none waits for another
  };
  Kind kind;
  int micro_batch = 0;                           // of a computation
  int chunk = 0;                                 // of a computation
  std::vector<PipelineMessage> sends, receives;  // of an exchange

  bool operator==(const PipelineStep&) const = default;
};

// The steps of each stage. With several chunks a stage holds several runs of blocks (interleaved
// schedules): chunk c of stage s is run c * stages + s of the model, whose output goes to the next
// run. Where the next run is on the same stage the value stays there, without a message.
//
// A plain backward is a kBackwardInput directly followed by the kBackwardWeight of the same
// micro-batch and chunk; an executor may do both in one sweep.
struct PipelineSchedule {
  std::string name;
  int stages = 1;
  int micro_batches = 1;
  int chunks = 1;
  std::vector<std::vector<PipelineStep>> steps;  // [stage][position]
};

// All forwards, then all backwards in the same order (Huang et al., "GPipe", 2019). Every stage
// holds all micro-batches. stages >= 1, micro_batches >= 1; micro-batches may be fewer than stages.
PipelineSchedule gpipe_schedule(int stages, int micro_batches);

// One forward, one backward in turn once the pipeline is full (Narayanan et al., "PipeDream-Flush",
// in "Memory-Efficient Pipeline-Parallel DNN Training", 2021): the bubble of GPipe, but stage s
// holds at most stages - s micro-batches.
PipelineSchedule one_f_one_b_schedule(int stages, int micro_batches);

// Forwards alone, for evaluation and generation.
PipelineSchedule forward_schedule(int stages, int micro_batches);

// By the name that grid.schedule takes: "gpipe" or "1f1b". Throws ConfigError for another.
PipelineSchedule make_pipeline_schedule(const std::string& name, int stages, int micro_batches);

// Puts the exchanges into a schedule that lists computations only: between two computations one
// exchange sends what the first produced and receives what the second needs. So two neighbours that
// swap an activation for a gradient meet in one fused operation, and rendezvous sends suffice.
// A backward-input and the backward-weight that directly follows it stay together.
void insert_exchanges(PipelineSchedule& schedule);

// What a computation takes, in any unit of time.
struct StepCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
  double exchange = 0;
};

struct ScheduleReport {
  bool ok = false;
  std::string problem;  // a sentence on the first problem found; empty where ok
  // Per stage: the most micro-batches (times chunks) whose forward was run and whose
  // backward-weight was not yet: those hold activations.
  std::vector<int> peak_live;
  double makespan = 0;         // from the first step of any stage to the last, by the costs
  double bubble_fraction = 0;  // share of stages * makespan in which no stage computes
};

// Proves that a schedule is complete (each computation of each micro-batch once, in order of
// dependency; each value that is used was computed here or received, each message goes where it is
// used) and free of deadlock when sends are rendezvous and lanes are in order: an exchange ends
// when each of its transfers has met its match, and the k-th send of a lane (from, to) meets the
// k-th receive. Steps are named by their position from 0. peak_live, makespan and bubble_fraction
// are set where ok.
ScheduleReport check_schedule(const PipelineSchedule& schedule, const StepCosts& costs = {});

// What check_schedule finds for peak_live of make_pipeline_schedule(name, stages, micro_batches),
// without making it.
std::vector<int> live_micro_batches(const std::string& name, int stages, int micro_batches);

}  // namespace trireme::parallel

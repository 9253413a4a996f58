// Pipeline schedules as data: what every stage computes and sends, in order. A function of (stages,
// micro-batches) makes a schedule, a checker proves it correct, and one executor runs them all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/pipeline_layout.h"

namespace trireme::parallel {

// A value that crosses a stage boundary: the output of a micro-batch's forward, which goes to the
// next stage, or the gradient of a micro-batch's input, which goes to the stage before.
struct PipelineMessage {
  enum class Payload { kActivation, kGradient };
  Payload payload;
  int micro_batch;
  int chunk;  // the chunk of the producing stage that made it
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
  int micro_batch = 0;                           // for a computation
  int chunk = 0;                                 // for a computation
  std::vector<PipelineMessage> sends, receives;  // for an exchange

  bool operator==(const PipelineStep&) const = default;
};

// The steps of each stage. A computation is of a micro-batch and of one of the stage's chunks. The
// output of a part of the model goes to the next part, and the gradient of its input to the part
// before. If that is on the same stage, the value stays there and no message is sent.
//
// A plain backward is a kBackwardInput directly followed by the kBackwardWeight of the same
// micro-batch and chunk; the executor does both in one sweep. Otherwise weight gradients wait for
// their kBackwardWeight, but not those of the block that ends in the loss: logits are made once, so
// all that it computes is in its kBackwardInput. So is the gradient of a bias in front of GELU,
// which one pass makes with the input gradient, and which waits to be added.
//
// Parts of the model before `first_backward` have no backward, because nothing in or before them
// trains: no gradient is sent to them, and they keep nothing of a micro-batch.
struct PipelineSchedule {
  std::string name;
  PipelineLayout layout{};
  int micro_batches = 1;
  std::vector<std::vector<PipelineStep>> steps;  // [stage][position]
  int first_backward = 0;
};

// All forwards, then all backwards in the same order (Huang et al., "GPipe", 2019). Every stage
// holds all micro-batches. stages >= 1, micro_batches >= 1; micro-batches may be fewer than stages.
PipelineSchedule gpipe_schedule(int stages, int micro_batches);

// 1F1B: once the pipeline is full, one forward and one backward alternate (Narayanan et al.,
// "PipeDream-Flush", in "Memory-Efficient Pipeline-Parallel DNN Training", 2021). It has the bubble
// of GPipe, but stage s holds at most stages - s micro-batches.
PipelineSchedule one_f_one_b_schedule(int stages, int micro_batches);

// Interleaved 1F1B (Narayanan et al., "Efficient Large-Scale Language Model Training on GPU
// Clusters Using Megatron-LM", 2021): 1F1B over parts of the model, of which each stage has
// `chunks`, in the order PipelineLayout::Order::kLoop. The micro-batches go through in groups of
// one for each stage, so the stages must divide their number. The bubble of 1F1B divided by the
// chunks. Stage s holds at most 2 (stages - s - 1) + (chunks - 1) stages + 1 micro-batches, each in
// one chunk.
PipelineSchedule interleaved_schedule(int stages, int chunks, int micro_batches);

// ZB-H1 (Qi et al., "Zero Bubble Pipeline Parallelism", 2023): 1F1B whose weight gradients wait for
// times at which the stage would be idle. If forward, input gradient and weight gradient take
// equally long, it has a third of the bubble of 1F1B. Every stage holds up to `stages`
// micro-batches, as the first stage does in 1F1B.
PipelineSchedule zb_h1_schedule(int stages, int micro_batches);

// ZB-V (the same paper): two chunks in the order PipelineLayout::Order::kV, and weight gradients
// that wait. If all computations take equally long and there are 2 stages micro-batches or more,
// half of the bubble of ZB-H1 (a little more with many stages): a stage is idle only until the
// first micro-batch reaches it, and at the end as long as others are. Every stage holds up to 2
// stages micro-batches, each in one chunk: as much as the first stage holds in 1F1B.
PipelineSchedule zb_v_schedule(int stages, int micro_batches);

// Forward passes only, for evaluation and generation. A stage takes as many micro-batches as there
// are stages through its first chunk, then through its second, and so on, and then the next ones.
PipelineSchedule forward_schedule(const PipelineLayout& layout, int micro_batches);

// What a schedule with a name of grid.schedule runs on: "gpipe", "1f1b" and "zb-h1" have one chunk
// on each stage, "zb-v" two in a V, and "interleaved" any number (2 if it is not given). Throws
// ConfigError for other names, and for a number of chunks that the schedule does not have.
PipelineLayout schedule_layout(const std::string& name, int stages, std::optional<int> chunks);

// The names, those with the larger bubble first.
const std::vector<std::string>& schedule_names();

// Whether a replica may have so many micro-batches: only "interleaved" does not take all numbers.
bool takes_micro_batches(const std::string& name, const PipelineLayout& layout, int micro_batches);

// Makes the schedule with that name. `layout` is that of schedule_layout, and takes_micro_batches
// holds. Throws ConfigError for other names.
PipelineSchedule make_pipeline_schedule(const std::string& name, const PipelineLayout& layout,
                                        int micro_batches, int first_backward = 0);

// Takes the backward of parts before `first_backward` out of a complete schedule, with what is
// exchanged for it. What is left keeps its order, so it stays correct and free of deadlock. The
// last part has a backward.
PipelineSchedule without_backward_before(int first_backward, PipelineSchedule schedule);

// Where the gradient of a part's input is sent.
enum class SendsGradient {
  kAfterBackward,       // behind the weight gradients, if those follow directly: one sweep for both
  kAfterBackwardInput,  // before them, so that the stage before need not wait for them
};

// Inserts the exchanges into a schedule that lists computations only. A value is sent directly
// after the computation that makes it. It is received when it would be made if all computations
// took equally long, or after the computation that the receiver is at then. Between two
// computations all sends and receives are one fused operation. So the exchanges follow one clock
// and each waits only for such as stand at earlier times: the schedule is free of deadlock even
// with rendezvous sends. Throws InternalError if computations wait for each other.
void insert_exchanges(PipelineSchedule& schedule,
                      SendsGradient sends = SendsGradient::kAfterBackward);

// The time that the computations of one part of the model take, in any unit (partition.h:
// costs_of_parts).
struct StepCosts {
  double forward = 1;
  double backward_input = 1;
  double backward_weight = 1;
};

struct ScheduleCosts {
  std::vector<StepCosts> parts{};  // one for each part; empty: each computation takes 1
  double exchange = 0;             // between the later of its two ends and its completion
  // Whether the exchanges of a stage run one after another (Communicator::exchanges_in_order).
  bool in_order = false;
};

struct ScheduleReport {
  bool ok = false;
  std::string problem;  // a sentence about the first problem found; empty if ok
  // The peak number of micro-batches (times chunks) of each stage that hold activations: those
  // whose forward has run and whose backward-weight has not. 0 without a backward; parts without
  // one do not count.
  std::vector<int> peak_live;
  double makespan = 0;         // from the first step of any stage to the end of the last
  double bubble_fraction = 0;  // the share of stages * makespan in which stages are idle
};

// Proves that a schedule is complete, in order and free of deadlock. Complete: each computation of
// each micro-batch runs once (no backward at all is fine too, and there is none before
// PipelineSchedule::first_backward), after what it depends on; each value
// that is used was computed on the stage or received; each message goes to a stage that uses it. In
// order: the backward computations of a chunk take the micro-batches as they are numbered, so that
// gradients add up in the same order under all schedules, except in a matrix that two blocks of one
// stage share. Free of deadlock: every exchange ends,
// with rendezvous sends and in-order lanes. An exchange ends when all its transfers are matched,
// and the k-th send of a lane (from, to) matches the k-th receive. The report numbers steps from 0
// and sets peak_live, makespan and bubble_fraction if ok. For makespan and bubble_fraction
// exchanges go on while stages compute, and a computation waits for the transfer that brings its
// input; with ScheduleCosts::in_order for the exchange that does, which begins after the one
// before.
ScheduleReport check_schedule(const PipelineSchedule& schedule, const ScheduleCosts& costs = {});

// Whether two neighbouring steps are a plain backward.
bool is_plain_backward(const PipelineStep& first, const PipelineStep& second);

// The peak_live that check_schedule reports for make_pipeline_schedule with these arguments,
// without making the schedule.
std::vector<int> live_micro_batches(const std::string& name, const PipelineLayout& layout,
                                    int micro_batches);

}  // namespace trireme::parallel

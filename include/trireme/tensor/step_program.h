// What the host of one rank does in a step, in its order: operations, communication, and what waits
// for what. A dry run records it (plan/dry_run.h); the planner costs and replays it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tensor/dtype.h"

namespace trireme {

struct ProgramEntry {
  enum class Kind : std::uint8_t {
    kCompute,     // queues an operation on the stream
    kCopy,        // queues a copy of `bytes` between the host and a device, or on a device
    kPost,        // begins communication `number`, which starts once the stream has come here
    kWait,        // the stream goes on when communication `number` is done
    kMark,        // point `number` in the stream
    kWaitMark,    // the stream goes on when another one has come to point `number`
    kWaitStream,  // the host goes on when the stream is idle
    // The next `number` entries begin with waits. The host does them when these would wait for
    // nothing: it looks here, at every kLook, and goes on without them until then.
    kLater,
    kLook,
    kSettle,  // at most `number` such blocks stay undone: the host waits for the oldest ones
    kPhase,   // what follows belongs to phase `name` of micro-batch or step `number`
  };
  Kind kind = Kind::kCompute;
  DType dtype = DType::kF32;  // of an operation: that of its first tensor
  std::int32_t name = 0;      // an index of StepProgram::names
  std::int32_t stream = 0;    // 0: the host, which is all there is where ranks compute on CPUs
  std::int32_t number = -1;
  // The sizes of an operation. A product has m, n, k and a batch (a convolution: pixels, output
  // channels, taps x input channels of a group, groups); attention has sequences x heads, queries,
  // keys and the size of a head. Others have rows and columns of their first tensor.
  std::array<std::int64_t, 4> sizes{};
  double flops = 0.0;
  double bytes = 0.0;  // of the tensors of an operation; of a copy

  bool operator==(const ProgramEntry&) const = default;
};

// One operation of a communicator, or one message of an exchange.
struct ProgramCommunication {
  std::int32_t name = 0;   // an index of StepProgram::names: "all_reduce", "send"
  int lane = 0;            // Communicator::lane_id
  int peer = -1;           // world rank of a message's other end; -1: a collective
  std::int32_t first = 0;  // the number of the first message of the same exchange
  std::size_t bytes = 0;   // as the flight recorder counts them

  bool operator==(const ProgramCommunication&) const = default;
};

struct StepProgram {
  std::vector<std::string> names;
  std::vector<ProgramEntry> entries;
  std::vector<ProgramCommunication> communications;
  int streams = 1;  // with the host
  int marks = 0;

  const std::string& name_of(const ProgramEntry& entry) const {
    return names[static_cast<std::size_t>(entry.name)];
  }
  const ProgramCommunication& communication(const ProgramEntry& entry) const {
    return communications[static_cast<std::size_t>(entry.number)];
  }
  bool operator==(const StepProgram&) const = default;
};

// One line for each entry: "12 matmul bf16 4096x3072x1024 on 1: 25.8 GFLOP, 33.0 MB".
std::string to_text(const StepProgram& program);

// Names a communication of one of the programs of a log.
struct PostedCommunication {
  std::uint64_t program = 0;
  std::int32_t number = -1;  // -1: none
};

// Writes a program while a dry run goes on. What is waited for and was recorded in a program before
// is left out: it is done.
class ProgramLog {
 public:
  // `stream` is Stream::native of what queues the work, or nullptr for the host.
  void compute(const void* stream, std::string_view name, DType dtype,
               const std::array<std::int64_t, 4>& sizes, double flops, double bytes);
  void copy(const void* stream, std::string_view name, double bytes);

  // `together`: a message of the same exchange that was posted before, if there is one.
  PostedCommunication post(const void* stream, std::string_view name, int lane, int peer,
                           std::size_t bytes, const PostedCommunication& together = {});
  void wait(const void* stream, const PostedCommunication& posted);

  void mark(const void* stream, const void* event);
  void wait_mark(const void* stream, const void* event);  // nullptr: the host waits
  void wait_stream(const void* stream);
  // What is recorded between the two is a block of kLater. No block is within another.
  void begin_later();
  void end_later();
  void look();
  void settle(std::int32_t most_undone);
  void phase(std::string_view name, std::int64_t number);

  // Returns what was recorded since the last call, or since the log was made.
  StepProgram take();

 private:
  ProgramEntry& add(ProgramEntry::Kind kind, const void* stream);
  std::int32_t name(std::string_view text);
  std::int32_t stream_number(const void* stream);

  StepProgram program_;
  std::uint64_t program_number_ = 1;
  std::map<std::string, std::int32_t, std::less<>> names_;
  std::map<const void*, std::int32_t> streams_;  // kept from program to program
  std::map<const void*, std::int32_t> marks_;    // the last mark of each event
  std::size_t later_ = 0;                        // the entry that began the block
};

}  // namespace trireme

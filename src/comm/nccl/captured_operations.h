// Operations of NCCL that are captured with a step and replayed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "trireme/comm/captured_communication.h"

#include "comm/nccl/device_operation.h"

namespace trireme::nccl {

// The events of a capture cannot be queried. So on the GPU a small kernel before each operation and
// one behind it publish the number of the replay in pinned memory, where the engine's thread reads
// it. It takes both: an operation begins when its input is ready, which may be long after the
// operation before it on this stream has ended, and a rank that is still computing must not look
// like one that waits for its peers.
class CapturedOperations final : public CapturedCommunication {
 public:
  // Capturing in `session` until join(). `number` is in device memory and grows from replay to
  // replay.
  CapturedOperations(Session& session, const Stream& stream, const std::int64_t* number);
  ~CapturedOperations() override;

  // Captures an operation of a communicator. `enter` queues it on `own`, the communicator's stream.
  Work add(const Stream& ready, const Stream& own, const std::shared_ptr<Connection>& connection,
           std::vector<OperationPart> parts, const std::function<void()>& enter);

  void join() override;
  void held_by(std::function<void()> give_up) override;
  void replay(std::int64_t number) override;

 private:
  // The numbers of the last replays in which the operation began and ended.
  struct Marks {
    std::int64_t begun = 0, ended = 0;
  };
  struct Captured {
    std::shared_ptr<Connection> connection;
    std::vector<OperationPart> parts;
    std::shared_ptr<Marks> marks;
  };
  class Replayed;

  std::shared_ptr<cuda::Event> mark(const Stream& stream) const;
  std::shared_ptr<Marks> next_marks() const;

  Session& session_;
  const Stream stream_;
  const std::int64_t* const number_;
  const std::shared_ptr<Marks[]> marks_;
  std::vector<Captured> operations_;
  // The event at the end of the last operation on each stream.
  std::map<cuda::StreamHandle, std::pair<Stream, std::shared_ptr<cuda::Event>>> last_;
};

}  // namespace trireme::nccl

// Operations of NCCL that are captured with a step and replayed.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "trireme/comm/captured_communication.h"

#include "device_operation.h"

namespace trireme::nccl {

// No event of a capture can be asked whether it is done. So on the GPU each operation copies the
// number of the replay to pinned memory when it begins and when it ends, and the engine's thread
// reads it there.
class CapturedOperations final : public CapturedCommunication {
 public:
  // Open, in `session`, until join(). `number` in device memory grows from replay to replay.
  CapturedOperations(Session& session, const Stream& stream, const std::int64_t* number);
  ~CapturedOperations() override;

  // Of a communicator: `enter` queues the operation on `own`, its stream.
  Work add(const Stream& ready, const Stream& own, const std::shared_ptr<Connection>& connection,
           std::vector<OperationPart> parts, const std::function<void()>& enter);

  void join() override;
  void held_by(std::function<void()> give_up) override;
  void replay(std::int64_t number) override;

 private:
  struct Marks {  // numbers of the last replays in which it began and ended
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
  // By stream: what marks the end of the last operation there.
  std::map<cuda::StreamHandle, std::pair<Stream, std::shared_ptr<cuda::Event>>> last_;
};

}  // namespace trireme::nccl

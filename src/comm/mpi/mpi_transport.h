// Messages over MPI, of contents in host memory.
#pragma once

#include <memory>
#include <vector>

#include <mpi.h>

#include "trireme/comm/segments.h"
#include "trireme/comm/transport.h"

namespace trireme {

// The group whose ranks exchange the messages of an operation.
struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int tag = 0;
  bool synchronous = false;        // rendezvous sends only
  Allocator* workspace = nullptr;  // of the runtime
  std::size_t segment_bytes = std::size_t{32} << 20;
  std::size_t worthwhile_bytes = kWorthwhileBytes;
  std::shared_ptr<const RankBlocks> blocks = {};
  std::size_t piece_bytes = std::size_t{1} << 30;  // longer messages are cut: MPI counts are ints
};

class MpiTransport final : public Transport {
 public:
  explicit MpiTransport(const MpiGroup& group)
      : Transport(group.rank, group.size, group.segment_bytes, group.worthwhile_bytes,
                  group.blocks),
        group_(group) {}

  void send(const std::byte* data, std::size_t bytes, int peer) override;
  void receive(std::byte* data, std::size_t bytes, int peer) override;
  void signal(int to, int from) override;
  bool done() override;
  std::size_t posted() const override { return finished_ + requests_.size(); }
  bool done(std::size_t first, std::size_t last) override;
  void abandon(std::unique_ptr<Task> task) override;
  Buffer workspace(std::size_t bytes) override;
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) override;
  void reduce(ReduceOp op, DType source_type, std::span<const std::byte* const> sources,
              DType out_type, std::byte* out, std::size_t count) override;

 private:
  void post_send(const std::byte* data, int bytes, int peer);
  void post_receive(std::byte* data, int bytes, int peer);
  MPI_Request& add(bool receives, int peer);
  bool test(std::size_t first, std::size_t last);  // requests
  void drop(std::size_t count);                    // the first requests, which are done

  MpiGroup group_;
  std::size_t finished_ = 0;  // messages that are done and no longer among the requests
  std::vector<MPI_Request> requests_;
  // These have one element for each request.
  std::vector<bool> receives_;
  std::vector<int> peers_;
  std::vector<MPI_Status> statuses_;
};

}  // namespace trireme

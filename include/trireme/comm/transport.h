// What collective operations are made of: messages between the ranks of a group, and what a rank
// does with the contents. Our collectives (collective_tasks.h) are written against this interface
// alone. So the code that runs over MPI also runs in a simulated world, where contents may be
// absent.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "trireme/comm/communicator.h"
#include "trireme/comm/rank_blocks.h"
#include "trireme/comm/task.h"
#include "trireme/tensor/allocator.h"

namespace trireme {

// One rank's end of one operation, whose task and owner share it. Tasks pass the addresses of their
// tensors and of workspace() on and never access what is there themselves.
class Transport {
 public:
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  // The size of the segments in which a reduction passes through workspace.
  std::size_t segment_bytes() const { return segment_bytes_; }
  // A message of this size costs the network more time than its start. The same on all ranks.
  std::size_t worthwhile_bytes() const { return worthwhile_bytes_; }
  // Which of the ranks are near each other; nullptr if that is not known.
  const std::shared_ptr<const RankBlocks>& blocks() const { return blocks_; }

  // Post a message to or from another rank. The data must stay in place until done() has returned
  // true. Messages between two ranks are matched in the order in which they are posted, and both
  // ends must agree on the number of bytes. Nothing is sent for 0 bytes.
  virtual void send(const std::byte* data, std::size_t bytes, int peer) = 0;
  virtual void receive(std::byte* data, std::size_t bytes, int peer) = 0;
  // Posts an empty message each way, of which only the arrival matters.
  virtual void signal(int to, int from) = 0;
  // Returns whether all messages that were posted have been sent and received. Never waits.
  virtual bool done() = 0;
  // Messages are numbered from 0 in the order in which they are posted; a long one may be several.
  // Returns the number of the next one.
  virtual std::size_t posted() const = 0;
  // Says what done() says, but of the messages with the numbers from `first` up to but not
  // including `last`.
  virtual bool done(std::size_t first, std::size_t last) = 0;

  // Ends an operation whose task is dropped before it is done, for example on a fault. The task
  // owns what its messages read and write. So the task is destroyed when no message can touch
  // memory any more, and kept until then.
  virtual void abandon(std::unique_ptr<Task> task) = 0;

  // Allocates memory for contents that pass through this rank.
  virtual Buffer workspace(std::size_t bytes) = 0;
  virtual void copy(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  // Reduces as reduce_tree does (reduce.h).
  virtual void reduce(ReduceOp op, DType source_type, std::span<const std::byte* const> sources,
                      DType out_type, std::byte* out, std::size_t count) = 0;

 protected:
  Transport(int rank, int size, std::size_t segment_bytes, std::size_t worthwhile_bytes,
            std::shared_ptr<const RankBlocks> blocks)
      : rank_(rank),
        size_(size),
        segment_bytes_(segment_bytes),
        worthwhile_bytes_(worthwhile_bytes),
        blocks_(std::move(blocks)) {}

 private:
  int rank_, size_;
  std::size_t segment_bytes_, worthwhile_bytes_;
  std::shared_ptr<const RankBlocks> blocks_;
};

using TransportPtr = std::shared_ptr<Transport>;

}  // namespace trireme

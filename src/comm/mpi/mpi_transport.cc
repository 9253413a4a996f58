#include "comm/mpi/mpi_transport.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "trireme/comm/reduce.h"

#include "comm/mpi/mpi_util.h"

namespace trireme {

// What has begun to arrive can no longer be cancelled, and MPI does not cancel what is sent.
void MpiTransport::abandon(std::unique_ptr<Task> task) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (receives_[i] && requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
  }
  keep_until_done(std::exchange(requests_, {}), std::move(task));
}

void MpiTransport::send(const std::byte* data, std::size_t bytes, int peer) {
  for (std::size_t begin = 0; begin < bytes; begin += group_.piece_bytes) {
    post_send(data + begin, static_cast<int>(std::min(group_.piece_bytes, bytes - begin)), peer);
  }
}

void MpiTransport::receive(std::byte* data, std::size_t bytes, int peer) {
  for (std::size_t begin = 0; begin < bytes; begin += group_.piece_bytes) {
    post_receive(data + begin, static_cast<int>(std::min(group_.piece_bytes, bytes - begin)), peer);
  }
}

void MpiTransport::signal(int to, int from) {
  post_receive(nullptr, 0, from);
  post_send(nullptr, 0, to);
}

bool MpiTransport::done() {
  if (!test(0, requests_.size())) return false;
  drop(requests_.size());
  return true;
}

bool MpiTransport::done(std::size_t first, std::size_t last) {
  if (!test(std::max(first, finished_) - finished_, std::max(last, finished_) - finished_)) {
    return false;
  }
  std::size_t first_open = 0;
  while (first_open < requests_.size() && requests_[first_open] == MPI_REQUEST_NULL) ++first_open;
  if (first_open > requests_.size() / 2) drop(first_open);  // not each time: the others move
  return true;
}

bool MpiTransport::test(std::size_t first, std::size_t last) {
  if (first == last) return true;
  int all = 0;
  statuses_.resize(last - first);
  const int code =
      MPI_Testall(static_cast<int>(last - first), &requests_[first], &all, statuses_.data());
  if (code == MPI_ERR_IN_STATUS) [[unlikely]] {
    for (std::size_t i = 0; i < statuses_.size(); ++i) {
      if (statuses_[i].MPI_ERROR == MPI_ERR_PENDING) continue;
      check_message(statuses_[i].MPI_ERROR, receives_[first + i] ? "receive" : "send", group_.comm,
                    peers_[first + i]);
    }
  }
  check_mpi(code, "finish a message");
  return all != 0;
}

void MpiTransport::drop(std::size_t count) {
  const auto end = static_cast<std::ptrdiff_t>(count);
  requests_.erase(requests_.begin(), requests_.begin() + end);
  receives_.erase(receives_.begin(), receives_.begin() + end);
  peers_.erase(peers_.begin(), peers_.begin() + end);
  finished_ += count;
}

Buffer MpiTransport::workspace(std::size_t bytes) {
  return group_.workspace->allocate(bytes, MemoryUse::kCommunication, Stream());
}

void MpiTransport::copy(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::memcpy(to, from, bytes);
}

void MpiTransport::reduce(ReduceOp op, DType source_type, std::span<const std::byte* const> sources,
                          DType out_type, std::byte* out, std::size_t count) {
  reduce_tree(op, source_type, sources, out_type, out, count);
}

void MpiTransport::post_send(const std::byte* data, int bytes, int peer) {
  const auto post = group_.synchronous ? MPI_Issend : MPI_Isend;
  check_message(post(data, bytes, MPI_BYTE, peer, group_.tag, group_.comm, &add(false, peer)),
                "send", group_.comm, peer);
}

void MpiTransport::post_receive(std::byte* data, int bytes, int peer) {
  check_message(MPI_Irecv(data, bytes, MPI_BYTE, peer, group_.tag, group_.comm, &add(true, peer)),
                "receive", group_.comm, peer);
}

MPI_Request& MpiTransport::add(bool receives, int peer) {
  receives_.push_back(receives);
  peers_.push_back(peer);
  return requests_.emplace_back(MPI_REQUEST_NULL);
}

}  // namespace trireme

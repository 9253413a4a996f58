// The objects of the scripted NCCL: communicators, and operations on streams.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "support/fake_nccl.h"
#include "support/mpi_meeting.h"

namespace trireme::testing {

inline constexpr auto kInvalidArgument = static_cast<nccl::Result>(4);
inline constexpr int kAbortTag = 1 << 18;  // added to a communicator's tag

inline bool overlap(const std::byte* a, std::size_t a_bytes, const std::byte* b,
                    std::size_t b_bytes) {
  return a < b + b_bytes && b < a + a_bytes;
}

// Ranks find each other as they do in NCCL: each reports to the maker of the id, which tells all.
struct FakeNccl::Comm {
  MPI_Comm channel = MPI_COMM_NULL;
  int tag = 0, ranks = 1, rank = 0, maker = 0;
  static constexpr int kNowhere = -1;
  std::vector<int> places;               // by rank: its rank in the channel, once they have met
  std::vector<std::array<int, 2>> told;  // (rank, place), at the maker
  std::array<int, 2> own = {};
  std::vector<MPI_Request> requests;
  int phase = 0;

  std::function<bool()> settled;  // empty: nothing is in progress
  int polls = 0;                  // how many more polls get kInProgress
  Result fails_with = Result::kSuccess;
  bool finalized = false;
  std::atomic<bool> aborted = false;
  bool connected = false;         // with all ranks
  std::set<int> linked;           // ranks that send to this one or receive from it
  std::atomic<int> running = 0;   // operations on streams
  std::thread::id caller;         // of the last call
  bool may_be_unsettled = false;  // as far as the caller knows
  bool inside = false;            // a thread is in a blocking call

  bool all_done() {
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done != 0) requests.clear();
    return done != 0;
  }
  std::vector<int> others() const {
    std::vector<int> result;
    for (const int place : places) {
      if (place != own[1]) result.push_back(place);
    }
    return result;
  }
  bool met() {
    if (ranks == 1) return true;
    const bool makes = rank == 0;
    const int bytes = ranks * static_cast<int>(sizeof(int));
    if (phase == 0) {
      requests.resize(static_cast<std::size_t>(makes ? ranks - 1 : 2));
      if (makes) {
        for (std::size_t i = 0; i < requests.size(); ++i) {
          MPI_Irecv(told[i].data(), 2, MPI_INT, MPI_ANY_SOURCE, tag, channel, &requests[i]);
        }
      } else {
        MPI_Isend(own.data(), 2, MPI_INT, maker, tag, channel, &requests[0]);
        MPI_Irecv(places.data(), bytes, MPI_BYTE, maker, tag, channel, &requests[1]);
      }
      ++phase;
    }
    if (phase == 1 && all_done()) {
      ++phase;
      if (!makes) return true;
      places[0] = own[1];
      for (const auto& [other, place] : told) places[static_cast<std::size_t>(other)] = place;
      requests.resize(told.size());
      for (std::size_t i = 0; i < requests.size(); ++i) {
        MPI_Isend(places.data(), bytes, MPI_BYTE, told[i][1], tag, channel, &requests[i]);
      }
    }
    return phase == 2 && all_done();
  }
  void tell_of_abort() {
    for (const int place : places) {
      if (place == own[1] || place == kNowhere) continue;
      MPI_Request request = MPI_REQUEST_NULL;
      MPI_Isend(nullptr, 0, MPI_BYTE, place, tag + kAbortTag, channel, &request);
      MPI_Request_free(&request);
    }
  }
  bool peer_has_aborted() const {
    int found = 0;
    MPI_Iprobe(MPI_ANY_SOURCE, tag + kAbortTag, channel, &found, MPI_STATUS_IGNORE);
    return found != 0;
  }
  // Drops the requests of a meeting that is given up.
  void cancel() {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      give_up(requests[i], phase == 1 && (rank == 0 || i == 1));
    }
    requests.clear();
  }
};

// Messages that are in flight together, and a function to call when all have arrived.
struct FakeNccl::Operation {
  struct Message {
    std::byte* data;
    std::size_t bytes;
    int peer;
    bool sends;
  };
  Operation(FakeCuda& given_cuda, std::shared_ptr<Comm> given_comm, cuda::StreamHandle given_stream)
      : cuda(given_cuda), comm(std::move(given_comm)), stream(given_stream) {}

  FakeCuda& cuda;
  std::shared_ptr<Comm> comm;
  cuda::StreamHandle stream;
  std::vector<Message> messages;
  std::vector<std::pair<const void*, std::size_t>> memory;  // what it uses: address and bytes
  std::vector<std::vector<std::byte>> received;             // by rank, for a collective
  std::function<void(Operation&)> start, finish;
  std::vector<MPI_Request> requests;
  bool started = false;
  bool point_to_point = false;
  bool in_graph = false;
  // Shared by all copies that the launches of a graph make.
  std::shared_ptr<std::atomic<bool>> over = std::make_shared<std::atomic<bool>>(false);

  bool uses(const std::byte* data, std::size_t bytes) const {
    return !*over && !comm->aborted && std::ranges::any_of(memory, [&](const auto& used) {
      return overlap(static_cast<const std::byte*>(used.first), used.second, data, bytes);
    });
  }
  void check() {
    for (const auto& [data, bytes] : memory) cuda.check_access(data, bytes, "NCCL's use");
  }
  // All-gathers the `bytes` at `data` into `received`, by rank.
  void bring_all(const void* data, std::size_t bytes) {
    received.resize(static_cast<std::size_t>(comm->ranks));
    for (int rank = 0; rank < comm->ranks; ++rank) {
      auto& part = received[static_cast<std::size_t>(rank)];
      part.resize(bytes);
      if (rank == comm->rank) {
        std::memcpy(part.data(), data, bytes);
        continue;
      }
      messages.push_back({part.data(), bytes, rank, false});
      messages.push_back(
          {const_cast<std::byte*>(static_cast<const std::byte*>(data)), bytes, rank, true});
    }
  }
  void post() {
    requests.resize(messages.size(), MPI_REQUEST_NULL);
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const Message& message = messages[i];
      const int place = comm->places[static_cast<std::size_t>(message.peer)];
      const int bytes = static_cast<int>(message.bytes);
      if (message.sends) {  // synchronous: ends only when the peer receives it
        MPI_Issend(message.data, bytes, MPI_BYTE, place, comm->tag, comm->channel, &requests[i]);
      } else {
        MPI_Irecv(message.data, bytes, MPI_BYTE, place, comm->tag, comm->channel, &requests[i]);
      }
    }
  }
  // The stream polls this.
  bool ended() {
    *over = advance();
    return *over;
  }
  bool advance() {
    if (comm->aborted) {
      for (std::size_t i = 0; i < requests.size(); ++i) {
        give_up(requests[i], !messages[i].sends);
      }
      --comm->running;
      return true;
    }
    if (!started) {
      started = true;
      check();
      if (start) start(*this);
      post();
    }
    int done = 0;
    MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE);
    if (done == 0) return false;
    check();
    if (finish) finish(*this);
    --comm->running;
    return true;
  }
};

}  // namespace trireme::testing

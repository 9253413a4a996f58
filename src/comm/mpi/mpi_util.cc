#include "comm/mpi/mpi_util.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <iterator>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

#include "comm/mpi/backoff.h"

namespace trireme {

namespace {

// MPICH's message has many lines about where it was. Only the last line says what happened:
// "MPIDI_UCX_send(83).: returned failed request in UCX netmod(ucx_send.h 83 MPIDI_UCX_send Endpoint
// timeout)".
std::string words_of(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  std::string_view words(text, static_cast<std::size_t>(length));
  while (words.ends_with('\n')) words.remove_suffix(1);
  if (const auto line = words.rfind('\n'); line != words.npos) words.remove_prefix(line + 1);
  if (const auto place = words.find("): "); place != words.npos) words.remove_prefix(place + 3);
  if (const auto place = words.find(".: "); place != words.npos) words.remove_prefix(place + 3);
  while (words.starts_with(' ')) words.remove_prefix(1);
  return std::string(words);
}

int world_rank_of(MPI_Comm comm, int rank) {
  MPI_Group group = MPI_GROUP_NULL;
  MPI_Group world = MPI_GROUP_NULL;
  int found = MPI_UNDEFINED;
  MPI_Comm_group(comm, &group);
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_translate_ranks(group, 1, &rank, world, &found);
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  return found;
}

}  // namespace

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  throw MpiError(fmt::format("MPI could not {}: {}", what, words_of(code)));
}

void check_message(int code, std::string_view what, MPI_Comm comm, int peer) {
  if (code == MPI_SUCCESS) [[likely]]
    return;
  throw LostRankError(fmt::format("the connection to rank {} is lost: MPI could not {}: {}",
                                  world_rank_of(comm, peer), what, words_of(code)));
}

void wait_yielding(MPI_Request& request, std::string_view what) {
  Backoff backoff(Backoff::kWhileWaiting);
  int done = 0;
  while (true) {
    const std::int64_t poll = now_ns();
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    if (done != 0) return;
    backoff.step(false, poll);
  }
}

void keep_until_done(std::vector<MPI_Request> requests, std::shared_ptr<void> owner) {
  struct Kept {
    std::vector<MPI_Request> requests;
    std::shared_ptr<void> owner;

    bool done() {
      int all = 0;
      return MPI_Testall(static_cast<int>(requests.size()), requests.data(), &all,
                         MPI_STATUSES_IGNORE) == MPI_SUCCESS &&
             all != 0;
    }
  };
  if (requests.empty()) return;
  // Never destroyed: MPI may still write when the process ends.
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<Kept>;
  std::vector<Kept> released;  // outside of the lock
  const std::lock_guard lock(mutex);
  kept.push_back({std::move(requests), std::move(owner)});
  const auto done = std::ranges::stable_partition(kept, [](Kept& one) { return !one.done(); });
  std::ranges::move(done, std::back_inserter(released));
  kept.erase(done.begin(), done.end());
}

OwnedComm::~OwnedComm() {
  if (comm_ == MPI_COMM_NULL || std::uncaught_exceptions() > 0) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&comm_);
}

OwnedComm OwnedComm::duplicate(MPI_Comm parent) {
  OwnedComm result;
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(parent, &result.comm_, &request), "duplicate a communicator");
  wait_yielding(request, "duplicate a communicator");
  MPI_Comm_set_errhandler(result.comm_, MPI_ERRORS_RETURN);
  return result;
}

OwnedComm OwnedComm::of_world_ranks(const int* ranks, int count, int tag) {
  OwnedComm result;
  MPI_Group world = MPI_GROUP_NULL;
  MPI_Group group = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "find the group of the world");
  check_mpi(MPI_Group_incl(world, count, ranks, &group), "form a group of ranks");
  check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &result.comm_),
            "create a communicator");
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  MPI_Comm_set_errhandler(result.comm_, MPI_ERRORS_RETURN);
  return result;
}

}  // namespace trireme

#include "train/rank_watch.h"

#include <algorithm>
#include <cstddef>
#include <type_traits>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/resident_memory.h"
#include "trireme/comm/launcher.h"
#include "trireme/io/whole_file.h"

namespace trireme {
namespace {

constexpr std::int64_t kFewestSteps = 2;      // in a window
constexpr std::int64_t kLinkBytes = 1 << 20;  // large enough that the bandwidth determines the time
constexpr int kLinkTries = 2;                 // the fastest counts

template <class T>
Tensor bytes_of(T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  return Tensor::wrap(&value, {static_cast<std::int64_t>(sizeof value)}, DType::kU8);
}

// Returns every rank's value on rank 0, and nothing on other ranks.
template <class T>
std::vector<T> gather(Communicator& world, T mine) {
  std::vector<T> all;
  std::vector<Transfer> transfers;
  if (world.rank() == 0) {
    all.resize(static_cast<std::size_t>(world.size()));
    all[0] = mine;
    for (int rank = 1; rank < world.size(); ++rank) {
      transfers.push_back(
          {Transfer::Direction::kReceive, rank, bytes_of(all[static_cast<std::size_t>(rank)])});
    }
  } else {
    transfers.push_back({Transfer::Direction::kSend, 0, bytes_of(mine)});
  }
  if (!transfers.empty()) world.exchange(Stream(), std::move(transfers)).wait_host();
  return all;
}

}  // namespace

// What a rank reports about itself once.
struct RankWatch::Place {
  std::int32_t node;
  DimensionNumbers place;
  std::int32_t micro_batches;
  char host[108];
};

// What a rank reports about each window. Times are the mean seconds per step.
struct RankWatch::Report {
  double compute, wait_data, comm, memory_bytes;
  double to_previous, to_next;  // on the first rank of a node: seconds for kLinkBytes each way
};

void RankWatch::begin() const {
  if (grid_.runtime().rank() != 0) return;
  try {
    remove_if_there(setting_.file, ExitStatus::kRunFolder);
  } catch (const RunFolderError& error) {
    report_line(fmt::format("{}; the run goes on", error.what()));
  }
}

void RankWatch::add(double seconds, double wait_data_seconds, double exposed_comm_seconds,
                    double longest_seconds) {
  seconds_ += seconds;
  wait_data_ += wait_data_seconds;
  exposed_comm_ += exposed_comm_seconds;
  longest_ += longest_seconds;
  ++steps_;
}

std::vector<std::string> RankWatch::look(std::int64_t step) {
  ended_ = false;
  if (setting_.every <= 0.0 || steps_ < kFewestSteps || longest_ < setting_.every) return {};
  const Stopwatch watch;
  if (!places_known_) find_places();
  const auto steps = static_cast<double>(steps_);
  Report mine{.compute = std::max(0.0, seconds_ - wait_data_ - exposed_comm_) / steps,
              .wait_data = wait_data_ / steps,
              .comm = exposed_comm_ / steps,
              .memory_bytes = peak_resident_bytes(),
              .to_previous = 0.0,
              .to_next = 0.0};
  if (leaders_) measure_links(mine);
  const std::vector<Report> reports = gather(grid_.runtime().world(), mine);
  std::vector<std::string> lines;
  if (!reports.empty()) {
    table_.first_step = step - steps_ + 1;
    table_.last_step = step;
    table_.gather_seconds = watch.seconds();
    lines = judge(reports);
    ended_ = true;
    write();
  }
  begin_window();
  return lines;
}

void RankWatch::begin_window() {
  seconds_ = wait_data_ = exposed_comm_ = longest_ = 0.0;
  steps_ = 0;
}

void RankWatch::work_changed(const parallel::WorkSplit& work) {
  setting_.micro_batches = work.count(grid_.index(kDataAxes));
  for (RankTimes& rank : table_.ranks) {
    rank.micro_batches = work.count(rank.place[dimension_with(kDataAxes)]);
  }
  detector_ = {};
  begin_window();
}

// Called only when the first window is full, because at the start of a run no rank may receive from
// all others in turn.
void RankWatch::find_places() {
  places_known_ = true;
  RankRuntime& runtime = grid_.runtime();
  Place mine{
      .node = runtime.node(), .place = {}, .micro_batches = setting_.micro_batches, .host = {}};
  for (std::size_t i = 0; i < mine.place.size(); ++i) {
    mine.place[i] = grid_.index(kGridDimensions[i].axes);
  }
  node_name().copy(mine.host, sizeof mine.host - 1);
  const std::vector<Place> places = gather(runtime.world(), mine);
  table_.nodes.resize(static_cast<std::size_t>(runtime.nodes()));
  for (const Place& place : places) {
    table_.nodes[static_cast<std::size_t>(place.node)].host = place.host;
    table_.ranks.push_back(
        {.node = place.node, .place = place.place, .micro_batches = place.micro_batches});
  }
  std::vector<std::int64_t> leaders(table_.nodes.size(), 0);
  if (runtime.local_rank() == 0) leaders[static_cast<std::size_t>(runtime.node())] = runtime.rank();
  runtime.world().all_reduce_host(std::span<std::int64_t>(leaders), ReduceOp::kMax);
  if (leaders.size() > 1 && runtime.local_rank() == 0) {
    leaders_ = runtime.host_group("nodes", {leaders.begin(), leaders.end()});
  }
}

// Measures the pairs of neighbours on the ring of nodes, in rounds. In a round no node is in two
// pairs.
void RankWatch::measure_links(Report& mine) {
  const int nodes = leaders_->size(), own = leaders_->rank();
  const int rounds = nodes == 2 ? 1 : 2 + nodes % 2;
  std::vector<std::uint8_t> sent(kLinkBytes), received(kLinkBytes);
  const auto seconds_with = [&](int peer) {
    double fewest = 0.0;
    for (int i = 0; i < kLinkTries; ++i) {
      const Stopwatch watch;
      leaders_
          ->exchange(Stream(), {{Transfer::Direction::kReceive, peer,
                                 Tensor::wrap(std::span<std::uint8_t>(received))},
                                {Transfer::Direction::kSend, peer,
                                 Tensor::wrap(std::span<std::uint8_t>(sent))}})
          .wait_host();
      fewest = i == 0 ? watch.seconds() : std::min(fewest, watch.seconds());
    }
    return fewest;
  };
  const auto round_of = [&](int pair) {
    return pair == nodes - 1 && nodes % 2 == 1 ? 2 : pair % 2;
  };
  const int before = (own + nodes - 1) % nodes;
  for (int round = 0; round < rounds; ++round) {
    leaders_->barrier().wait_host();
    if (round_of(own) == round) mine.to_next = seconds_with((own + 1) % nodes);
    if (round_of(before) == round) mine.to_previous = seconds_with(before);
  }
}

std::vector<std::string> RankWatch::judge(const std::vector<Report>& reports) {
  std::vector<double> to_previous(table_.nodes.size(), 0.0), to_next = to_previous;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    RankTimes& rank = table_.ranks[i];
    rank.compute_seconds = reports[i].compute;
    rank.wait_data_seconds = reports[i].wait_data;
    rank.comm_seconds = reports[i].comm;
    rank.memory_bytes = reports[i].memory_bytes;
    const auto node = static_cast<std::size_t>(rank.node);
    to_previous[node] = std::max(to_previous[node], reports[i].to_previous);
    to_next[node] = std::max(to_next[node], reports[i].to_next);
  }
  const std::vector<double> rates =
      link_rates(to_previous, to_next, static_cast<double>(kLinkBytes));
  for (std::size_t i = 0; i < rates.size(); ++i) table_.nodes[i].bytes_per_second = rates[i];
  return detector_.look(table_);
}

void RankWatch::write() {
  try {
    write_whole_file(setting_.file, to_json(table_));
  } catch (const RunFolderError& error) {
    if (!failed_) report_line(fmt::format("{}; the run goes on without it", error.what()));
    failed_ = true;
  }
}

}  // namespace trireme

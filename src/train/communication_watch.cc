#include "train/communication_watch.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/upper_median.h"
#include "trireme/comm/bus_factor.h"
#include "trireme/io/whole_file.h"

namespace trireme {
namespace {

constexpr std::size_t kMostCollectives = 60;  // in the file

}  // namespace

CommunicationWatch::CommunicationWatch(Runtime& runtime, const parallel::Stage& stage,
                                       NetworkOfJob network, Config::Comm comm,
                                       const AlgorithmTuner* tuner, std::string file)
    : runtime_(runtime),
      stage_(stage),
      network_(std::move(network)),
      comm_(std::move(comm)),
      tuner_(tuner),
      file_(std::move(file)) {}

const Prediction& CommunicationWatch::predict(const PlannedComm& communicator, const Key& key) {
  const auto known = predictions_.find(key);
  if (known != predictions_.end()) return known->second;
  const auto& [lane, collective, bytes, algorithm] = key;
  std::unique_ptr<PredictedNetwork>& network = networks_[lane];
  if (!network) {
    network = std::make_unique<PredictedNetwork>(
        blocks_among(network_.network->blocks, communicator.ranks), network_.network->rates);
  }
  auto prediction = trireme::predict(network->predictor, collective, algorithm, bytes);
  return predictions_.emplace(key, std::move(prediction).value_or(Prediction())).first->second;
}

CommunicationTable CommunicationWatch::table() {
  CommunicationTable table{.source = network_.network ? network_.network->source : "",
                           .order = comm_.order,
                           .communicators = {},
                           .collectives = {},
                           .tuned = {}};
  if (tuner_ != nullptr) table.tuned = tuner_->found();
  std::map<Key, std::vector<double>> seconds;
  const std::vector<PlannedComm> planned = planned_communicators(runtime_, stage_);
  for (const Operation& operation : runtime_.recorder().finished()) {
    const auto collective = collective_named(operation.name);
    const auto found = std::ranges::find(
        planned, operation.lane, [](const PlannedComm& one) { return one.comm->lane_id(); });
    if (!collective || operation.peer >= 0 || found == planned.end()) continue;
    const CommunicatorPlan& plan = *found->plan;
    if (plan.trials && operation.begin_ns < plan.trials->stopped_ns()) continue;
    const int ranks = found->comm->size();
    const Algorithm algorithm = plan.algorithms.choose(*collective, operation.bytes, ranks);
    seconds[{operation.lane, *collective, operation.bytes, algorithm}].push_back(
        1e-9 * static_cast<double>(operation.end_ns - operation.begin_ns));
  }
  for (const PlannedComm& communicator : planned) {
    const int ranks = communicator.comm->size();
    table.communicators.push_back(
        {.name = communicator.name,
         .ranks = ranks,
         .nodes = communicator.plan->blocks ? communicator.plan->blocks->blocks(0) : 0,
         .table = table_text(communicator.plan->algorithms, ranks)});
    std::vector<CollectiveRecord> of_it;
    for (const auto& [key, times] : seconds) {
      const auto& [lane, collective, bytes, algorithm] = key;
      if (lane != communicator.comm->lane_id()) continue;
      CollectiveRecord record{.communicator = communicator.name,
                              .collective = std::string(name_of(collective)),
                              .algorithm = std::string(name_of(algorithm)),
                              .bytes = bytes,
                              .count = static_cast<int>(times.size()),
                              .measured_seconds = upper_median(times)};
      if (record.measured_seconds > 0.0) {
        record.bus_bandwidth =
            bus_factor(collective, ranks) * static_cast<double>(bytes) / record.measured_seconds;
      }
      if (network_.network) {
        const Prediction& prediction = predict(communicator, key);
        record.predicted_seconds = prediction.seconds;
        record.link = prediction.link;
        record.link_seconds = prediction.share * prediction.seconds;
      }
      of_it.push_back(std::move(record));
    }
    std::ranges::stable_sort(of_it, std::greater<>(), &CollectiveRecord::time);
    std::ranges::move(of_it, std::back_inserter(table.collectives));
  }
  keep_longest(table, kMostCollectives);
  return table;
}

void CommunicationWatch::write() {
  try {
    write_whole_file(file_, to_json(table()));
  } catch (const std::exception& error) {
    if (!failed_) report_line(fmt::format("{}; the run goes on without it", error.what()));
    failed_ = true;
  }
}

std::string CommunicationWatch::source() const {
  const bool chosen = comm_.algorithms != "auto";
  const bool scratch = comm_.tune && comm_.order == "any";
  if (!network_.network && !chosen && !scratch) return "";
  std::string source = network_.network ? network_.network->source : "the default";
  if (chosen) source += ", and " + comm_.algorithms;
  if (scratch) source += ", and what was measured at the start";
  return source;
}

std::string CommunicationWatch::row() const {
  const std::string known = source();
  if (known.empty() || !network_.network || network_.rates_are_measured) return known;
  return known + "; trireme topo probe measures them";
}

std::string CommunicationWatch::text(const std::string& carrier) const {
  const std::string known = source();
  if (known.empty()) return known;
  std::optional<PlannedComm> largest;
  for (PlannedComm& one : planned_communicators(runtime_, stage_)) {
    if (one.name == "world" || one.name == "grid") continue;  // little travels there
    if (!largest || one.ranks.size() > largest->ranks.size()) largest = std::move(one);
  }
  if (!largest) return known;
  return fmt::format(
      "{}; {}{}: {}", known,
      carrier == "mpi" ? "" : fmt::format("{} chooses for GPUs itself; on hosts, ", carrier),
      largest->name,
      table_text(largest->plan->algorithms, static_cast<int>(largest->ranks.size())));
}

}  // namespace trireme

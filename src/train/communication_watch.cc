#include "train/communication_watch.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/bus_factor.h"
#include "trireme/io/whole_file.h"

namespace trireme {
namespace {

constexpr std::size_t kMostCollectives = 60;  // in the file

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

CommunicationWatch::CommunicationWatch(Runtime& runtime, const ProcessGrid& grid,
                                       NetworkOfJob network, std::string order, std::string file)
    : runtime_(runtime),
      grid_(grid),
      network_(std::move(network)),
      order_(std::move(order)),
      file_(std::move(file)) {}

std::vector<CommunicationWatch::Planned> CommunicationWatch::communicators() const {
  std::vector<Planned> result;
  for (const Communicator* one : {&runtime_.world(), &grid_.world(), &grid_.data(),
                                  &grid_.pipeline(), &grid_.tensor(), &grid_.model()}) {
    const Runtime::PlannedCommunicator* made = nullptr;  // the last one of that name
    for (const Runtime::PlannedCommunicator& each : runtime_.communicators()) {
      if (each.name == one->name()) made = &each;
    }
    if (one->size() > 1 && made != nullptr) result.push_back({one->lane_id(), made});
  }
  return result;
}

const Prediction& CommunicationWatch::predict(const Runtime::PlannedCommunicator& communicator,
                                              const Key& key) {
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
                           .order = order_,
                           .communicators = {},
                           .collectives = {}};
  std::map<Key, std::vector<double>> seconds;
  const std::vector<Planned> planned = communicators();
  for (const Operation& operation : runtime_.recorder().finished()) {
    const auto collective = collective_named(operation.name);
    const auto communicator = std::ranges::find(planned, operation.lane, &Planned::lane);
    if (!collective || operation.peer >= 0 || communicator == planned.end()) continue;
    const int ranks = static_cast<int>(communicator->made->ranks.size());
    const Algorithm algorithm =
        communicator->made->plan->algorithms.choose(*collective, operation.bytes, ranks);
    seconds[{operation.lane, *collective, operation.bytes, algorithm}].push_back(
        1e-9 * static_cast<double>(operation.end_ns - operation.begin_ns));
  }
  for (const auto& [own_lane, made] : planned) {
    const Runtime::PlannedCommunicator& communicator = *made;
    const int ranks = static_cast<int>(communicator.ranks.size());
    table.communicators.push_back(
        {.name = communicator.name,
         .ranks = ranks,
         .nodes = communicator.plan->blocks ? communicator.plan->blocks->blocks(0) : 0,
         .table = table_text(communicator.plan->algorithms, ranks)});
    std::vector<CollectiveRecord> of_it;
    for (const auto& [key, times] : seconds) {
      const auto& [lane, collective, bytes, algorithm] = key;
      if (lane != own_lane) continue;
      CollectiveRecord record{.communicator = communicator.name,
                              .collective = std::string(name_of(collective)),
                              .algorithm = std::string(name_of(algorithm)),
                              .bytes = bytes,
                              .count = static_cast<int>(times.size()),
                              .measured_seconds = median(times)};
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

std::string CommunicationWatch::text(const std::string& carrier) const {
  if (!network_.network) return "";
  const Runtime::PlannedCommunicator* largest = nullptr;
  for (const auto& [lane, made] : communicators()) {
    if (made->name == "world" || made->name == "grid") continue;  // little travels there
    if (largest == nullptr || made->ranks.size() > largest->ranks.size()) largest = made;
  }
  if (largest == nullptr) return network_.network->source;
  return fmt::format(
      "{}; {}{}: {}", network_.network->source,
      carrier == "mpi" ? "" : fmt::format("{} chooses for GPUs itself; on hosts, ", carrier),
      largest->name,
      table_text(largest->plan->algorithms, static_cast<int>(largest->ranks.size())));
}

}  // namespace trireme

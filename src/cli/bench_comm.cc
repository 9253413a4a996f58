// trireme bench comm: collectives of the ranks that the launcher started.
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/comm/bus_factor.h"
#include "trireme/setup/communication.h"
#include "trireme/topology/planner.h"

#include "cli/bench_arguments.h"

namespace trireme::cli {
namespace {

bool only_on_hosts(const BenchArguments::Comm& given) {
  return given.peer || given.algorithm != "table";
}

std::vector<bench::CommCarrier> carriers_of(const BenchArguments::Comm& given) {
  std::vector<bench::CommCarrier> carriers = bench::read_carriers(given.algorithm);
  if (given.peer) {
    for (const NativeCall call : {NativeCall::kBlocking, NativeCall::kTestAndYield}) {
      carriers.push_back({.name = std::string(name_of(call)), .native = call});
    }
  }
  return carriers;
}

bench::CommOptions comm_options(const BenchArguments& given) {
  bench::CommOptions options;
  options.sizes = bench::sizes_between(bench::read_bytes(given.comm.from, "--from"),
                                       bench::read_bytes(given.comm.to, "--to"), given.comm.factor);
  options.only = given.only;
  options.warmup = given.comm.warmup;
  options.repeats = given.repeats.value_or(options.repeats);
  options.seconds = given.seconds.value_or(options.seconds);
  options.fewest = given.comm.fewest;
  options.drop = given.comm.drop.value_or(options.drop);
  options.pause = given.comm.pause;
  options.carriers = carriers_of(given.comm);
  return options;
}

double predicted_seconds(Predictor& predictor, const bench::CommRow& row) {
  if (!row.algorithm) return 0.0;
  const auto prediction =
      predict(predictor, row.op, *row.algorithm, static_cast<std::size_t>(row.bytes));
  return prediction ? prediction->seconds : 0.0;
}

std::string text_of(const bench::CommRow& row, int ranks, bool with_prediction) {
  const double bandwidth = row.algorithm_bandwidth() * 1e-9;
  // What a table has chosen; the other carriers say it with their names.
  const bool chose = row.algorithm && name_of(*row.algorithm) != row.carrier;
  return fmt::format(
      "{:<16}{:>12}{:>12.1f}{:>12.3f}{:>12.3f}{:>8}{}  {}{}", name_of(row.op), row.bytes,
      row.seconds * 1e6, bandwidth, bandwidth * bus_factor(row.op, ranks), row.wrong,
      with_prediction ? fmt::format("{:>14}", or_dash(row.predicted * 1e6, "{:.1f}")) : "",
      row.carrier, chose ? fmt::format(" ({})", name_of(*row.algorithm)) : "");
}

void refuse_wrong_sums(const std::vector<bench::CommRow>& rows) {
  for (const bench::CommRow& row : rows) {
    if (row.wrong == 0) continue;
    throw InternalError(fmt::format("{} of {} bytes by {} left {} wrong elements", name_of(row.op),
                                    row.bytes, row.carrier, row.wrong));
  }
}

}  // namespace

void check_bench_comm(const BenchArguments& given) {
  if (bench::read_bytes(given.comm.from, "--from") > bench::read_bytes(given.comm.to, "--to")) {
    throw ConfigError(
        fmt::format("--from {} is more than --to {}", given.comm.from, given.comm.to));
  }
  carriers_of(given.comm);
  if (only_on_hosts(given.comm) && given.device.device == "cuda") {
    throw ConfigError(
        "--peer and --algorithm measure tensors of the host; leave out --device cuda");
  }
}

ExitStatus bench_comm(Runtime& runtime, const BenchArguments& given, NamedOutput& json) {
  DeviceRequest request = given.device;
  if (only_on_hosts(given.comm)) request.device = "cpu";
  ComputeDevice device = choose_compute_device(runtime, request);
  bench::CommOptions options = comm_options(given);
  const NetworkOfJob network = read_job_network(runtime, given.comm.network);
  for (const std::string& remark : network.remarks) print_on_first(runtime, remark);
  std::optional<PredictedNetwork> predicted;  // on rank 0
  if (network.network) {
    options.planner = make_planner(*network.network, /*any_order=*/false);
    options.any_planner = make_planner(*network.network, /*any_order=*/true);
    if (runtime.rank() == 0) predicted.emplace(network.network->blocks, network.network->rates);
  }
  const int ranks = runtime.size();
  print_on_first(runtime,
                 fmt::format("{} ranks on {} nodes, fp32, {} repeats, {}, carried by {}", ranks,
                             runtime.nodes(), options.repeats, device.name, device.carrier));
  print_on_first(runtime, fmt::format("{:<16}{:>12}{:>12}{:>12}{:>12}{:>8}{}  {}", "op", "bytes",
                                      "time us", "algbw GB/s", "busbw GB/s", "#wrong",
                                      predicted ? "  predicted us" : "", "carrier"));
  std::vector<bench::CommRow> rows;
  bench::measure_comm(runtime, device.context, options, [&](bench::CommRow row) {
    if (device.carrier != "mpi") row.algorithm.reset();  // NCCL chooses for itself
    if (runtime.rank() == 0) {
      if (predicted) row.predicted = predicted_seconds(predicted->predictor, row);
      print_line(text_of(row, ranks, predicted.has_value()));
    }
    rows.push_back(std::move(row));
  });
  json.write_whole(runtime, bench::comm_json(rows, ranks));
  refuse_wrong_sums(rows);
  return ExitStatus::kDone;
}

}  // namespace trireme::cli

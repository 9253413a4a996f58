// trireme topo choose and explain: what would carry the collectives of a job, and why.
#include <algorithm>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/log.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/base/text.h"
#include "trireme/study/bench.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/planner.h"

#include "cli/outputs.h"
#include "cli/topo.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kMostRanks = std::size_t{1} << 16;  // which take memory and seconds

// A job on a described network.
struct DescribedJob {
  JobNetwork network;
  std::vector<MeasuredCollective> measured;  // of as many ranks, on as many nodes
  std::vector<std::string> remarks;
};

// The nodes of --nodes, which are among those whose rates are stored; else all of these.
std::vector<std::string> stored_nodes(const TopoArguments& given, const StoredRates& stored) {
  if (given.nodes.empty()) return stored.hosts;
  const std::vector<std::string> names = expand_node_list(given.nodes, kMostNames);
  const std::vector<int> found = match_nodes(names, stored.hosts);
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] >= 0) continue;
    throw ConfigError(fmt::format("--nodes {}: '{}' is not one of the nodes of {}",
                                  shown(given.nodes), shown(names[i]), shown(given.network)));
  }
  return names;
}

// Puts ranks on hosts, node after node.
std::vector<std::string> place(const std::vector<std::string>& hosts, const TopoArguments& given) {
  const auto per_node = static_cast<std::size_t>(given.ranks_per_node);
  const std::size_t most = hosts.size() * per_node;
  const std::size_t ranks = given.ranks == 0 ? most : static_cast<std::size_t>(given.ranks);
  if (ranks > most) {
    throw ConfigError(fmt::format(
        "--ranks {}: the network has {} nodes, which hold {} at {} a node (--ranks-per-node)",
        ranks, hosts.size(), most, given.ranks_per_node));
  }
  if (ranks > kMostRanks) {
    throw ConfigError(
        given.ranks == 0
            ? fmt::format("--ranks-per-node {}: {} nodes hold {} ranks then; at most {} can be "
                          "planned for (--ranks)",
                          given.ranks_per_node, hosts.size(), ranks, kMostRanks)
            : fmt::format("--ranks {}: at most {} can be planned for", ranks, kMostRanks));
  }
  std::vector<std::string> of_ranks;
  for (std::size_t rank = 0; rank < ranks; ++rank) of_ranks.push_back(hosts[rank / per_node]);
  return of_ranks;
}

DescribedJob describe_job(const TopoArguments& given) {
  DescribedJob job;
  std::optional<StoredRates> stored;
  const std::string path = given.network;
  if (!path.empty()) stored = read_network_rates(read_small_file("--network", path), path);
  FabricSources sources;
  sources.slurm = given.slurm;
  sources.topology = given.topology;
  sources.dump = given.dump;
  if (sources.empty() && stored) {
    job.network = job_network(*stored, path, place(stored_nodes(given, *stored), given));
  } else {
    if (sources.empty()) sources = find_fabric_sources();
    const Fabric fabric = read_cluster(sources, true);
    const std::vector<std::string> hosts =
        given.nodes.empty() ? hosts_of(fabric) : nodes_in_order(given, fabric);
    if (hosts.empty()) {
      throw ConfigError(
          "nothing describes a network here: name a description with --network, --dump or --slurm");
    }
    for (const std::string& remark : fabric.remarks()) job.remarks.push_back(remark);
    std::string remark;
    job.network = job_network(fabric, given.dump.empty() ? "Slurm's topology" : given.dump,
                              place(hosts, given), remark);
    if (stored) {
      const std::string why_not = take_rates(job.network, *stored);
      if (why_not.empty()) {
        job.network.source += "; rates of " + path;
      } else {
        job.remarks.push_back(fmt::format("{}: {}; not used", path, why_not));
      }
    }
  }
  if (stored && job.network.blocks.blocks(0) == static_cast<int>(stored->hosts.size())) {
    job.measured = stored->collectives;
    std::erase_if(job.measured, [&](const MeasuredCollective& one) {
      return one.ranks != job.network.blocks.ranks();
    });
  }
  if (job.network.blocks.ranks() < 2) throw ConfigError("--ranks 1: one rank has nothing to send");
  return job;
}

// "16 ranks on 8 nodes, in 2 and 1 blocks above them; FILE, ..."
std::string heading(const DescribedJob& job) {
  const RankBlocks& blocks = job.network.blocks;
  std::vector<int> counts;
  for (int tier = 1; tier < blocks.tiers(); ++tier) counts.push_back(blocks.blocks(tier));
  return fmt::format(
      "{} ranks on {} nodes{}; {}", blocks.ranks(), blocks.blocks(0),
      counts.empty() ? "" : fmt::format(", below {} switches", fmt::join(counts, ", ")),
      job.network.source);
}

void print_remarks(const DescribedJob& job) {
  for (const std::string& remark : job.remarks) print_line("remark: " + remark);
}

// The time that was measured of just this size, but for what rounding to whole elements of fp32 for
// each rank takes off.
std::optional<double> measured_time(const DescribedJob& job, Collective collective,
                                    Algorithm algorithm, std::size_t bytes) {
  std::optional<double> seconds;
  const std::size_t unit = 4 * static_cast<std::size_t>(job.network.blocks.ranks());
  for (const MeasuredCollective& one : job.measured) {
    if (one.collective == collective && one.algorithm == name_of(algorithm) && one.bytes <= bytes &&
        bytes - one.bytes < unit) {
      seconds = one.seconds;
    }
  }
  return seconds;
}

// Says at which sizes times were measured, if none is of this one.
void print_measured_sizes(const DescribedJob& job, Collective collective) {
  std::set<std::size_t> sizes;
  for (const MeasuredCollective& one : job.measured) {
    if (one.collective == collective) sizes.insert(one.bytes);
  }
  if (sizes.empty()) return print_line("no time was measured among these ranks");
  std::vector<std::string> texts;
  for (const std::size_t size : sizes) texts.push_back(std::to_string(size));
  print_line(fmt::format("no time was measured of this size; there are times of {} bytes",
                         fmt::join(texts, ", ")));
}

Collective collective_of(const std::string& name) {
  if (const auto collective = collective_named(name)) return *collective;
  std::vector<std::string_view> names;
  for (const Collective collective : kCollectives) {
    if (collective != Collective::kExchange) names.push_back(name_of(collective));
  }
  throw ConfigError(fmt::format("topo explain {}: unknown collective; there are {}", name,
                                fmt::join(names, ", ")));
}

// Why no table has the algorithm for calls of this size; empty where one may.
std::string why_left_out(const TopoArguments& given, Collective collective, Algorithm algorithm,
                         std::size_t bytes, const Predictor& predictor) {
  if (!given.any_order && !keeps_order(collective, algorithm)) return "only with comm.order any";
  if (predictor.is_exchange(collective, algorithm)) return "left out: no block adds anything up";
  const double workspace = whole_workspace(collective, algorithm, bytes, predictor.ranks());
  if (workspace <= kMostPlannedWorkspace) return "";
  return fmt::format("left out: needs {:.1f} MiB of memory, a table allows {:g}",
                     workspace / (1 << 20), kMostPlannedWorkspace / (1 << 20));
}

// Writes what was printed, after what both actions say of the job.
void write_json(NamedOutput& output, const DescribedJob& job,
                std::initializer_list<std::pair<const char*, Json>> more) {
  Json json = Json::object({{"format_version", 1},
                            {"ranks", job.network.blocks.ranks()},
                            {"nodes", job.network.blocks.blocks(0)},
                            {"source", job.network.source}});
  for (const auto& [name, value] : more) json[name] = value;
  output.write_whole(json.dump(1) + "\n");
}

}  // namespace

ExitStatus topo_choose(const TopoArguments& given) {
  NamedOutput output(given.json);
  const DescribedJob job = describe_job(given);
  PredictedNetwork network(job.network.blocks, job.network.rates);
  Predictor& predictor = network.predictor;
  const AlgorithmTable table = make_table(predictor, given.any_order, job.network.errors);
  print_line(heading(job));
  print_line(fmt::format("{:<16}{:>12}  {:<12}{:>14}  {}", "collective", "up to", "algorithm",
                         "predicted, us", "busiest link there"));
  Json rules = Json::array();
  for (const AlgorithmTable::Rule& rule : table.rules()) {
    const bool last = rule.up_to_bytes > std::size_t{1} << 40;
    const std::size_t bytes = last ? std::size_t{64} << 20 : rule.up_to_bytes;
    const Prediction prediction =
        predict(predictor, rule.collective, rule.algorithm, bytes).value_or(Prediction());
    print_line(
        fmt::format("{:<16}{:>12}  {:<12}{:>14}  {}{}", name_of(rule.collective),
                    last ? "any" : size_text(rule.up_to_bytes), name_of(rule.algorithm),
                    microseconds_text(prediction.seconds),
                    prediction.link.empty() ? "" : fmt::format("{:.0f} % ", 100 * prediction.share),
                    prediction.link + (last ? ", at " + size_text(bytes) : "")));
    Json one = Json::object({{"collective", name_of(rule.collective)},
                             {"algorithm", name_of(rule.algorithm)},
                             {"predicted_s", prediction.seconds},
                             {"at_bytes", std::uint64_t{bytes}},
                             {"link", prediction.link},
                             {"link_share", prediction.share}});
    one["up_to_bytes"] = last ? Json() : Json(std::uint64_t{rule.up_to_bytes});
    rules.push_back(std::move(one));
  }
  print_remarks(job);
  write_json(output, job,
             {{"order", given.any_order ? "any" : "tree"}, {"rules", std::move(rules)}});
  return ExitStatus::kDone;
}

ExitStatus topo_explain(const TopoArguments& given) {
  if (given.words.size() != 2) {
    throw ConfigError("topo explain takes a collective and a size, as in: explain all_reduce 1M");
  }
  const Collective collective = collective_of(given.words[0]);
  const auto bytes = static_cast<std::size_t>(bench::read_bytes(given.words[1], "BYTES"));
  NamedOutput output(given.json);
  const DescribedJob job = describe_job(given);
  PredictedNetwork network(job.network.blocks, job.network.rates);
  Predictor& predictor = network.predictor;
  const Algorithm chosen = make_table(predictor, given.any_order, job.network.errors)
                               .choose(collective, bytes, predictor.ranks());
  print_line(heading(job));
  print_line(fmt::format("{} of {}: {}", name_of(collective), size_text(bytes), name_of(chosen)));
  print_line(fmt::format("{:<16}{:>14}{:>14}  {:<12}{}", "algorithm", "predicted, us",
                         "measured, us", "by", "busiest link, and the share of the time"));
  Json rows = Json::array();
  bool any_measured = false;
  for (const Candidate& one : candidates(predictor, collective, bytes, /*any_order=*/true)) {
    const Prediction& prediction = one.prediction;
    const auto measured = measured_time(job, collective, one.algorithm, bytes);
    const std::string why_not = why_left_out(given, collective, one.algorithm, bytes, predictor);
    print_line(fmt::format(
        "{:<16}{:>14}{:>14}  {:<12}{}{}", name_of(one.algorithm),
        microseconds_text(prediction.seconds), measured ? microseconds_text(*measured) : "",
        prediction.simulated ? "simulation" : "closed form",
        prediction.link.empty()
            ? ""
            : fmt::format("{}, {:.0f} %", prediction.link, 100 * prediction.share),
        why_not.empty() ? "" : "; " + why_not));
    Json row = Json::object({{"algorithm", name_of(one.algorithm)},
                             {"predicted_s", prediction.seconds},
                             {"simulated", prediction.simulated},
                             {"link", prediction.link},
                             {"link_share", prediction.share},
                             {"may_be_chosen", why_not.empty()}});
    if (measured) row["measured_s"] = *measured;
    any_measured = any_measured || measured;
    rows.push_back(std::move(row));
  }
  if (!any_measured) print_measured_sizes(job, collective);
  print_remarks(job);
  write_json(output, job,
             {{"collective", name_of(collective)},
              {"bytes", std::uint64_t{bytes}},
              {"chosen", name_of(chosen)},
              {"candidates", std::move(rows)}});
  return ExitStatus::kDone;
}

}  // namespace trireme::cli

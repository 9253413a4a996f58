// trireme bench comm|ops|products|step: the tables of study/bench.h.
#include <utility>
#include <vector>

#include "trireme/base/limits.h"
#include "trireme/parallel/schedule.h"

#include "cli/actions.h"
#include "cli/bench_arguments.h"
#include "cli/commands.h"

namespace trireme::cli {
namespace {

// A measurement, and the flags that it takes.
struct Bench {
  std::string_view name;
  std::vector<std::string_view> flags;
  void (*check)(const BenchArguments& given);
  ExitStatus (*run)(Runtime& runtime, const BenchArguments& given, NamedOutput& json);
};

const std::vector<Bench>& benches() {
  static const std::vector<Bench> table = {
      {"comm",
       {"from", "to", "factor", "warmup", "only", "algorithm", "peer", "network", "seconds",
        "fewest", "drop", "pause", "device", "backend", "repeats", "json"},
       check_bench_comm,
       bench_comm},
      {"ops",
       {"preset", "batch", "context", "dtype", "logits", "threads", "device", "any-order", "only",
        "products", "graphs", "cold", "repeats", "describe", "seconds", "json"},
       check_bench_ops,
       bench_ops},
      {"products", {"config", "write", "most", "repeats"}, check_bench_products, bench_products},
      {"step",
       {"preset",    "batch",     "context",   "dtype",  "logits",   "threads", "device",
        "backend",   "micro",     "pipeline",  "tensor", "schedule", "chunks",  "shard",
        "recompute", "same-bits", "any-order", "graphs", "kernels",  "repeats", "json"},
       check_bench_step,
       bench_step},
  };
  return table;
}

void declare_comm(Options& options, BenchArguments::Comm& given) {
  options.add("from", given.from, "bytes", "comm: smallest size", not_empty());
  options.add("factor", given.factor, "", "comm: each next size is so many times as much",
              between(2, limits::kCount));
  options.add("to", given.to, "bytes", "comm: largest size", not_empty());
  options.add("warmup", given.warmup, "", "comm: of each size, not measured",
              between(0, limits::kCount));
  options.add("algorithm", given.algorithm, "",
              "comm: of our collectives, one or a list as in table,halving; table: what the "
              "communicator's table chooses; any: the same under comm.order any; all: both and "
              "every algorithm; others than table carry tensors of the host",
              not_empty());
  options.add("peer", given.peer, "",
              "comm: also MPI's own calls, blocking ones and ones that test and yield, on tensors "
              "of the host");
  options.add("network", given.network, "",
              "comm: what the table's algorithms are chosen for, as comm.network of train: auto, "
              "none, or files",
              not_empty());
  options.paths({"network"}, PathForm::kList);
  options.add("fewest", given.fewest, "", "comm: repeats of each carrier whatever --seconds says",
              between(1, limits::kCount));
  options.add("drop", given.drop, "",
              "comm: who takes more than so many times the fastest carrier's time is not repeated; "
              "auto: all are",
              at_least(1.0));
  options.add("pause", given.pause, "s",
              "comm: without messages before each run, so that links which let bursts pass after a "
              "pause do so for all alike",
              at_least(0.0));
}

void declare_model(Options& options, BenchArguments::Model& given) {
  std::vector<std::string> presets;
  for (const models::Family* family : models::families()) {
    for (const std::string_view name : family->presets()) presets.emplace_back(name);
  }
  options.add("preset", given.preset, "", "ops, step: the model that gives the shapes",
              one_of(presets));
  options.add("batch", given.batch, "samples", "ops: at once; step: of a step",
              between(1, limits::kSequences));
  options.add("context", given.context, "tokens",
              "ops, step: of a sequence; auto: 256, or the model's where that is less",
              between(1, limits::kTokens));
  options.add("dtype", given.dtype, "", "ops, step: computing type; fp8 (run.precision): step",
              one_of({"fp32", "bf16", "fp16", "fp8"}));
  options.add("logits", given.logits, "",
              "ops, step: type of the logits of a vocabulary; bf16 with --dtype bf16 or fp8",
              one_of({"fp32", "bf16"}));
}

void declare_step(Options& options, BenchArguments::Step& given) {
  options.add("micro", given.micro, "samples", "step: of a micro-batch; auto: all of the batch",
              between(1, limits::kSequences));
  options.add("pipeline", given.pipeline, "ranks",
              "step: stages of the model; auto: 1, data takes the ranks that are left",
              between(1, limits::kRanks));
  options.add("tensor", given.tensor, "ranks", "step: parts of each stage; auto: 1",
              between(1, limits::kRanks));
  options.add("recompute", given.recompute, "",
              "step: what the backward computes again, as recompute.mode of train",
              one_of({"none", "selective", "full"}));
  options.add("schedule", given.schedule, "", "step: as grid.schedule of train",
              one_of(parallel::schedule_names()));
  options.add("chunks", given.chunks, "", "step: of each stage, as grid.chunks of train",
              between(1, limits::kLayers));
  options.add("shard", given.shard, "", "step: ZeRO's stage, as shard.stage of train",
              between(0, 3));
  options.add("same-bits", given.same_bits, "",
              "step: sums that have the same bits on every grid, as run.same_bits of train");
  options.add(
      "kernels", given.kernels, "",
      "step: also what takes its time, in further steps without a graph: operations, and on "
      "a GPU kernels and the gaps between them");
}

void declare_products(Options& options, BenchArguments::Products& given) {
  options.add("config", given.config, "file",
              "products: of training, as train takes it; its GPUs time the products of its steps");
  options.add("write", given.write, "file",
              "products: with the fastest algorithm of each, for cuda.products of train; empty: "
              "they are shown alone");
  options.add("most", given.most, "algorithms",
              "products: proposals of the library for each that are timed", between(1, 64));
  options.paths({"config", "write"});
}

// What several measurements take, and --products.
void declare_shared(Options& options, BenchArguments& given) {
  options.add("only", given.only, "",
              "comm, ops: operations whose name holds this, for comm one of "
              "a list as in reduce,gather; empty: all");
  options.add("products", given.products, "", "ops: products of matrices alone");
  options.add("graphs", given.graphs, "",
              "on a GPU, as a CUDA graph; ops: of many runs of an operation, so that launches cost "
              "nothing; step: but for its phases");
  options.add("cold", given.cold, "",
              "ops: on a GPU, each run after its cache has lost the operands");
  options.add(
      "describe", given.describe, "file",
      "ops: measures this machine by products and small models of its own, in fp32, bf16 and "
      "dtype, and writes what the device of a plan is described by; empty: no");
  options.add("seconds", given.seconds, "s",
              "comm: of all repeats of a size; auto: no limit; ops: of describe; auto: 100",
              above(0.0));
  options.add("repeats", given.repeats, "",
              "the median counts; auto: 20 for comm and products, 10 for ops, 5 for step",
              between(1, limits::kCount));
  options.add("threads", given.device.threads, "", "ops, step: of each rank; auto: its cores",
              between(1, limits::kThreads));
  options.add("device", given.device.device, "",
              "where to compute; auto: on GPUs where every rank sees one, else on CPUs",
              one_of({"auto", "cpu", "cuda"}));
  options.add(
      "any-order", given.device.any_order, "",
      "ops, step: attention's gradients on GPUs, as attention.deterministic false of train");
  options.add("backend", given.device.backend, "",
              "comm, step: what carries tensors of GPUs between ranks; as comm.backend of train",
              one_of({"auto", "mpi", "nccl"}));
  options.add("json", given.json, "file", "the same figures for programs; empty: none");
  options.paths({"describe", "json"});
}

}  // namespace

Work parse_bench(const Arguments& arguments) {
  BenchArguments given;
  std::vector<std::string> words;
  Options options("trireme bench comm|ops|products|step [--KEY VALUE]...");
  options.add_positional("WHAT", words,
                         "comm: collectives of the ranks that the launcher started; ops: the "
                         "operations of a model, alone; products: the algorithms of a GPU's "
                         "library for the products of a model; step: a training step on made-up "
                         "samples",
                         {"comm", "ops", "products", "step"});
  declare_comm(options, given.comm);
  declare_model(options, given.model);
  declare_products(options, given.of_products);
  declare_step(options, given.step);
  declare_shared(options, given);
  options.parse(arguments);
  if (options.help_requested()) return show_help(options.description());
  const Bench& bench = find_only_action("bench", benches(), words);
  refuse_flags_of_others("bench", bench, options, arguments);
  bench.check(given);
  check_backends(given.device);
  begin_outputs({given.json, given.describe, given.of_products.write});
  return {.alone = {}, .on_ranks = [&bench, given = std::move(given)](Runtime& runtime) {
            NamedOutput json(runtime, given.json);
            return bench.run(runtime, given, json);
          }};
}

}  // namespace trireme::cli

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/byte_size.h"
#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/ops/elementwise.h"
#include "trireme/study/bench.h"
#include "trireme/tensor/copy.h"

namespace trireme::bench {
namespace {

constexpr std::int64_t kElementBytes = 4;
constexpr std::int64_t kPeriod = 17;
constexpr int kRoot = 0;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// One run of so many seconds tells how fast a carrier is, even if it is the first one. Of shorter
// ones it takes three, and of short ones ten that take so many seconds together, since what
// disturbs some of them must not decide.
constexpr double kLongRun = 0.2, kShortRun = 0.02, kShortRuns = 0.005;
constexpr std::size_t kFewRuns = 3, kManyRuns = 10;

// Returns element i of a rank's input. The values are small integers, so that sums over all ranks
// are exact.
float element(int rank, std::int64_t i) {
  return static_cast<float>((rank * 31 + i * 7) % kPeriod);
}

// A carrier, its communicator, and the plan of that; no plan for a single rank.
struct Carrier : CommCarrier {
  std::shared_ptr<Communicator> comm;
  std::shared_ptr<const CommunicatorPlan> plan;

  bool knows(Collective op) const {
    if (op == Collective::kExchange) return !native && !forced && !any_order;
    if (!forced || *forced == Algorithm::kLibrary) return true;
    const auto known = algorithms_of(op);
    return std::ranges::find(known, *forced) != known.end();
  }

  std::optional<Algorithm> algorithm(Collective op, std::int64_t bytes) const {
    if (native || op == Collective::kExchange || !plan) return {};
    return plan->algorithms.choose(op, static_cast<std::size_t>(bytes), comm->size());
  }
};

std::vector<int> ranks_of(const Runtime& runtime) {
  std::vector<int> all(static_cast<std::size_t>(runtime.size()));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

// The communicators have plans of their own, so an algorithm can be forced on one of them.
std::vector<Carrier> make_carriers(Runtime& runtime, const CommOptions& options) {
  const std::vector<int> all = ranks_of(runtime);
  std::vector<Carrier> carriers;
  for (const CommCarrier& each : options.carriers) {
    runtime.use_planner(each.any_order ? options.any_planner : options.planner);
    carriers.push_back({each, runtime.group(fmt::format("bench {}", each.name), all), nullptr});
    if (runtime.size() == 1) continue;
    const std::shared_ptr<CommunicatorPlan> plan = runtime.communicators().back().plan;
    carriers.back().plan = plan;
    if (each.any_order && !options.any_planner) plan->algorithms = AlgorithmTable::any_order();
    if (!each.forced) continue;
    std::vector<AlgorithmTable::Rule> rules;
    for (const Collective op : kCollectives) {
      rules.push_back({op, AlgorithmTable::kAnySize, *each.forced});
    }
    plan->algorithms = AlgorithmTable(std::move(rules));
  }
  runtime.use_planner(options.planner);
  return carriers;
}

// One operation at one size: its buffers, how it is run, and its expected result.
class Trial {
 public:
  // `comm` has all ranks, and so have the communicators that run() is called with.
  Trial(Communicator& comm, ops::Context& ctx, Collective op, std::int64_t bytes)
      : comm_(comm), ctx_(ctx), op_(op) {
    const auto ranks = static_cast<std::int64_t>(comm.size());
    part_ = std::max<std::int64_t>(1, bytes / (kElementBytes * ranks));
    whole_ = part_ * ranks;
    const auto make = [&](std::int64_t n) {
      return allocate_carried({&comm}, *ctx.allocator, ctx.stream, {n}, DType::kF32,
                              MemoryUse::kCommunication);
    };
    source_ = make(op == Collective::kAllGather ? part_ : whole_);
    result_ = make(op == Collective::kReduceScatter ? part_ : whole_);
    ops::fill(ctx, result_, -1.0f);
    const Tensor first = ctx.allocate_host(source_.shape(), DType::kF32);
    for (std::int64_t i = 0; i < first.elements(); ++i) {
      first.data<float>()[i] = element(comm.rank(), i);
    }
    copy(first, source_, ctx.stream);
    for (int rank = 0; rank < comm.size(); ++rank) {
      for (std::int64_t i = 0; i < kPeriod; ++i) {
        sums_[static_cast<std::size_t>(i)] += element(rank, i);
      }
    }
  }

  // Where the runs of all carriers begin and end together. A rank that is done early already begins
  // the end, and takes time from those that share its cores, so the end must be the same for all.
  Communicator& meeting() const { return comm_; }
  std::int64_t bytes() const { return whole_ * kElementBytes; }

  // Resets the buffer of an in-place operation to its first values, since repeated sums would grow.
  void prepare() {
    const bool all = op_ == Collective::kAllReduce;
    if (all || (op_ == Collective::kBroadcast && comm_.rank() == kRoot)) {
      copy(source_, result_, ctx_.stream);
    }
    ctx_.stream.synchronize();
  }

  void run(const Carrier& carrier) {
    if (carrier.native) {
      run_native(*carrier.comm, *carrier.native, op_,
                 {.input = source_, .output = result_, .root = kRoot});
      return;
    }
    start(*carrier.comm, source_, result_).wait_on(ctx_.stream);
    ctx_.stream.synchronize();
  }

  std::int64_t wrong() const {
    const Tensor got = ctx_.allocate_host(result_.shape(), DType::kF32);
    copy(result_, got, ctx_.stream);
    ctx_.stream.synchronize();
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < got.elements(); ++i) {
      if (got.data<float>()[i] != expected(i)) ++count;
    }
    return comm_.all_reduce_host(count, ReduceOp::kSum);
  }

 private:
  Work start(Communicator& comm, const Tensor& in, const Tensor& out) {
    const int n = comm.size();
    switch (op_) {
      case Collective::kAllReduce:
        return comm.all_reduce(ctx_.stream, out, ReduceOp::kSum);
      case Collective::kReduceScatter:
        return comm.reduce_scatter(ctx_.stream, in, out, ReduceOp::kSum);
      case Collective::kAllGather:
        return comm.all_gather(ctx_.stream, in, out);
      case Collective::kBroadcast:
        return comm.broadcast(ctx_.stream, out, kRoot);
      case Collective::kAllToAll:
        return comm.all_to_all(ctx_.stream, in, out);
      case Collective::kExchange:
        break;
    }
    return comm.exchange(ctx_.stream,
                         {{Transfer::Direction::kSend, (comm.rank() + 1) % n, in},
                          {Transfer::Direction::kReceive, (comm.rank() + n - 1) % n, out}});
  }

  float sum(std::int64_t i) const { return sums_[static_cast<std::size_t>(i % kPeriod)]; }

  float expected(std::int64_t i) const {
    const int n = comm_.size(), me = comm_.rank();
    switch (op_) {
      case Collective::kAllReduce:
        return sum(i);
      case Collective::kReduceScatter:
        return sum(me * part_ + i);
      case Collective::kAllGather:
        return element(static_cast<int>(i / part_), i % part_);
      case Collective::kBroadcast:
        return element(kRoot, i);
      case Collective::kAllToAll:
        return element(static_cast<int>(i / part_), me * part_ + i % part_);
      case Collective::kExchange:
        break;
    }
    return element((me + n - 1) % n, i);
  }

  Communicator& comm_;
  ops::Context& ctx_;
  Collective op_;
  std::int64_t part_ = 0, whole_ = 0;  // elements
  Tensor source_, result_;
  std::array<float, kPeriod> sums_{};  // sum over all ranks of element i % kPeriod
};

// Returns the seconds of the slowest rank.
double timed_run(Trial& trial, const Carrier& carrier, double pause) {
  trial.prepare();
  if (pause > 0.0) std::this_thread::sleep_for(std::chrono::duration<double>(pause));
  trial.meeting().barrier().wait_host();
  const Stopwatch watch;
  trial.run(carrier);
  return trial.meeting().all_reduce_host(watch.seconds(), ReduceOp::kMax);
}

// The least median of all carriers; infinity if there is none.
double least_median(const std::vector<std::vector<double>>& seconds) {
  double least = kInfinity;
  for (const std::vector<double>& runs : seconds) {
    if (!runs.empty()) least = std::min(least, median(runs));
  }
  return least;
}

bool tells(std::size_t runs, double usual_seconds) {
  if (usual_seconds > kLongRun) return true;
  if (usual_seconds > kShortRun) return runs >= kFewRuns;
  return runs >= kManyRuns && static_cast<double>(runs) * usual_seconds >= kShortRuns;
}

// Whether the name contains one of the words of a list, which is empty for all.
bool is_among(std::string_view name, const std::string& list) {
  for (const std::string& word : split_list(list)) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

void measure(Communicator& meeting, const std::vector<Carrier>& carriers, ops::Context& ctx,
             Collective op, std::int64_t bytes, const CommOptions& options,
             const std::function<void(const CommRow&)>& report) {
  Trial trial(meeting, ctx, op, bytes);
  std::vector<CommRow> rows;
  // All ranks see the same times, so they agree on the number of repeats.
  std::vector<std::vector<double>> seconds(carriers.size());
  // Who runs first makes connections and touches memory, so that run counts only where it is the
  // only one.
  std::vector<bool> is_first(carriers.size());
  double spent = 0.0;
  for (std::size_t c = 0; c < carriers.size(); ++c) {
    const double run = timed_run(trial, carriers[c], options.pause);
    is_first[c] = run > kLongRun;
    if (is_first[c]) seconds[c].push_back(run);
    spent += run;
    rows.push_back({.op = op,
                    .carrier = carriers[c].name,
                    .bytes = trial.bytes(),
                    .wrong = trial.wrong(),
                    .algorithm = carriers[c].algorithm(op, trial.bytes())});
  }
  const auto enough = [&](std::size_t c, double least) {
    if (seconds[c].empty()) return false;
    if (std::isfinite(least)) {
      const double usual = median(seconds[c]);
      if (tells(seconds[c].size(), usual) && usual > options.drop * least) return true;
    }
    const int count = is_first[c] ? 0 : static_cast<int>(seconds[c].size());
    return count >= options.repeats || (spent > options.seconds && count >= options.fewest);
  };
  std::vector<std::size_t> order(carriers.size());
  std::iota(order.begin(), order.end(), 0);
  std::mt19937 random;  // draws the same on all ranks
  for (int i = 0; i < options.warmup + options.repeats; ++i) {
    const bool warm = i >= options.warmup;
    if (spent > options.seconds && !warm) continue;
    // Each round has another order, so that none always follows the same one: after a call that
    // spins for its messages, the threads of the next one wake up late.
    std::ranges::shuffle(order, random);
    const double least = std::isfinite(options.drop) ? least_median(seconds) : kInfinity;
    for (const std::size_t c : order) {
      if (enough(c, least)) continue;
      const double run = timed_run(trial, carriers[c], options.pause);
      spent += run;
      if (is_first[c]) seconds[c].clear();
      is_first[c] = false;
      if (warm) seconds[c].push_back(run);
    }
  }
  for (std::size_t c = 0; c < carriers.size(); ++c) {
    rows[c].repeats = static_cast<int>(seconds[c].size());
    rows[c].seconds = median(std::move(seconds[c]));
    report(rows[c]);
  }
}

}  // namespace

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : 0.5 * (values[middle - 1] + values[middle]);
}

std::int64_t read_bytes(const std::string& text, std::string_view flag) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const std::int64_t bytes = read_size(text).value_or(0);
  if (bytes < kElementBytes || bytes > kMost) {
    throw ConfigError(fmt::format(
        "{} {}: expected bytes, at least 4 and at most 1024G, as in 512, 64K or 16M", flag, text));
  }
  return bytes;
}

std::vector<std::int64_t> sizes_between(std::int64_t from, std::int64_t to, int factor) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = from; size <= to; size *= factor) sizes.push_back(size);
  return sizes;
}

std::vector<CommCarrier> read_carriers(const std::string& list) {
  // The tables, our algorithms, and MPI's own.
  constexpr std::ptrdiff_t kTables = 2;
  std::vector<std::string> known = {"table", "any"};
  std::vector<Algorithm> algorithms;
  for (const Collective op : kCollectives) {
    if (op == Collective::kExchange) continue;
    for (const Algorithm each : algorithms_of(op)) {
      if (std::ranges::find(algorithms, each) != algorithms.end()) continue;
      algorithms.push_back(each);
      known.emplace_back(name_of(each));
    }
  }
  algorithms.push_back(Algorithm::kLibrary);
  known.emplace_back(name_of(Algorithm::kLibrary));
  std::vector<CommCarrier> carriers;
  for (const std::string& name : list == "all" ? known : split_list(list)) {
    const auto found = std::ranges::find(known, name);
    if (found == known.end()) {
      throw ConfigError(
          fmt::format("--algorithm {}: there are all, {}", shown(name), fmt::join(known, ", ")));
    }
    CommCarrier carrier{.name = name, .any_order = name == "any"};
    const std::ptrdiff_t place = found - known.begin();
    if (place >= kTables) carrier.forced = algorithms[static_cast<std::size_t>(place - kTables)];
    carriers.push_back(std::move(carrier));
  }
  return carriers;
}

void measure_comm(Runtime& runtime, ops::Context& ctx, const CommOptions& options,
                  const std::function<void(const CommRow&)>& report) {
  const std::vector<Carrier> all = make_carriers(runtime, options);
  const std::shared_ptr<Communicator> meeting = runtime.group("bench meeting", ranks_of(runtime));
  for (const Collective op : kCollectives) {
    if (!is_among(name_of(op), options.only)) continue;
    for (const std::int64_t bytes : options.sizes) {
      std::vector<Carrier> carriers;
      for (const Carrier& carrier : all) {
        if (!carrier.knows(op)) continue;
        if (!options.wanted || options.wanted(op, bytes, carrier)) carriers.push_back(carrier);
      }
      if (!carriers.empty()) measure(*meeting, carriers, ctx, op, bytes, options, report);
    }
  }
}

}  // namespace trireme::bench

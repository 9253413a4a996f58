#include "trireme/comm/runtime.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/thread.h"
#include "trireme/base/usual_threads.h"
#include "trireme/comm/launcher.h"

#include "comm/device/device_carrier.h"
#include "comm/device/device_staging.h"
#include "comm/device/mpi_device_support.h"
#include "comm/faults/ending.h"
#include "comm/faults/fault.h"
#include "comm/faults/recorder_impl.h"
#include "comm/faults/same_call.h"
#include "comm/faults/start_limit.h"
#include "comm/faults/watchdog.h"
#include "comm/grid/rank_place.h"
#include "comm/mpi/eager_messages.h"
#include "comm/mpi/mpi_communicator.h"
#include "comm/self_communicator.h"

namespace trireme {
namespace {

// The time that the main thread has to report a fault of NCCL. Other ranks, which lose this rank by
// that fault, wait longer for the report (watchdog.cc).
constexpr double kMainComesSeconds = 1.0;

// The time by which the first rank is ahead where ranks cannot exchange their faults.
constexpr useconds_t kFirstSpeaksMicroseconds = 500'000;

// Owns MPI from start to end. Throws before anything else of the runtime is built.
class MpiSession {
 public:
  MpiSession() {
    int provided = MPI_THREAD_SINGLE;
    send_eagerly_over_tcp();
    {
      const StartGuard guard(
          fmt::format("rank {} ({}): MPI could not start; its own lines say why, often a limit on "
                      "threads, memory or files (ulimit -u, -v, -f; pids.max of the control group)",
                      launched_tasks().index, node_name()),
          static_cast<int>(ExitStatus::kDevice));
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "start");
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    try {
      if (provided < MPI_THREAD_MULTIPLE) {
        throw MpiError("this MPI library cannot be used by several threads (MPI_THREAD_MULTIPLE)");
      }
      check_world_size(size);
    } catch (...) {
      MPI_Finalize();
      throw;
    }
  }

  int rank = 0;
  int size = 1;
};

// FNV-1a over the name, the ranks, and the number of earlier groups with the same name and ranks.
// So all members compute the same value without a message, and any two groups that a job is likely
// to have get different values.
int lane_of(const std::string& name, const std::vector<int>& ranks, int earlier) {
  std::uint32_t hash = 2166136261u;
  const auto add = [&](std::uint32_t value) {
    for (int byte = 0; byte < 4; ++byte) hash = (hash ^ (value >> 8 * byte & 0xffu)) * 16777619u;
  };
  for (const char c : name) add(static_cast<unsigned char>(c));
  for (const int rank : ranks) add(static_cast<std::uint32_t>(rank));
  add(static_cast<std::uint32_t>(earlier));
  const int lane = static_cast<int>(hash & (kLibraryLaneBit - 1));
  return lane == 0 ? 1 : lane;  // 0 is the world
}

}  // namespace

class Runtime::Impl {
 public:
  explicit Impl(RuntimeOptions given);
  ~Impl() {
    *ending = true;
    if (carrier) carrier->abort();  // with no other rank
  }

  std::unique_ptr<Communicator> group(const GroupLabel& label, const std::vector<int>& ranks,
                                      bool host_only);
  std::unique_ptr<Communicator> make_world();
  // The plan of a new communicator where no planner decides.
  std::shared_ptr<CommunicatorPlan> add_plan(const std::string& name,
                                             const std::vector<int>& ranks);
  std::shared_ptr<const RankBlocks> blocks_of(const std::vector<int>& ranks) const;
  CommServices services(bool host_only) {
    return {engine, *workspace, options.synchronous_sends, &staging, host_only};
  }
  std::unique_ptr<Communicator> with_device(std::unique_ptr<Communicator> host, int earlier);
  void use_device(std::shared_ptr<cuda::Runtime> cuda, int device, DeviceBackend backend,
                  const NcclTuning& tuning);
  void join_world();
  void find_place();
  std::string who(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return fmt::format("rank {} ({})", rank, index < hosts.size() ? hosts[index] : node_name());
  }
  std::exception_ptr first_fault(std::exception_ptr exception) const;
  [[noreturn]] void end_normally(ExitStatus status);
  void claim_ending();
  void end_unless_main_does(const std::exception_ptr& fault);
  [[noreturn]] void end_with_fault(const std::exception_ptr& exception);
  std::vector<Fault> exchange_fault(const Fault& own);
  [[noreturn]] void tell_and_abort(const Fault& own, const std::vector<Fault>& known);
  [[noreturn]] void finish(int status);

  Startup startup{.program = process_seconds()};  // before MPI
  std::optional<StartLimit> start_limit{std::in_place};
  MpiSession mpi;
  RuntimeOptions options;
  std::vector<Place> places;
  std::vector<std::string> hosts;
  std::vector<int> node_of;  // by rank
  CommunicatorPlanner planner;
  std::vector<PlannedCommunicator> planned;
  int node = 0, nodes = 1, local_rank = 0, local_size = 1, cores = 1;
  std::map<std::pair<std::string, std::vector<int>>, int> groups_made;
  std::shared_ptr<Allocator> workspace = make_caching_allocator(Device());
  // True once a thread has begun to end the run. A thread that waits to do so may outlive this
  // object.
  std::shared_ptr<std::atomic<bool>> ending = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<DeviceStaging> staging;  // nullptr: only host tensors
  RunningClock clock;
  std::optional<ClockTicker> ticker;
  FlightRecorder recorder;
  ProgressEngine engine{recorder};
  std::unique_ptr<DeviceCarrier> carrier;  // nullptr: only MPI
  std::unique_ptr<Communicator> world;
  std::optional<Watchdog> watchdog;
  std::optional<ExitGuard> exit_guard;
};

Runtime::Impl::Impl(RuntimeOptions given) : options(std::move(given)) {
  try {
    join_world();
  } catch (...) {
    end_with_fault(std::current_exception());
  }
}

void Runtime::Impl::join_world() {
  startup.mpi = process_seconds() - startup.program;
  world = make_world();
  if (const auto difference = difference_between_ranks(*world, options.call)) {
    if (mpi.rank == 0) report_line(*difference);
    finish(static_cast<int>(ExitStatus::kUsage));
  }
  ticker.emplace(clock);
  places = gather_places(*world);
  for (const Place& place : places) hosts.emplace_back(place.node);
  find_place();
  if (mpi.size > 1) planned.front().plan->blocks = blocks_of(planned.front().ranks);
  exit_guard.emplace(who(mpi.rank));
  if (mpi.size > 1) {
    watchdog.emplace(recorder, clock, OwnedComm::duplicate(MPI_COMM_WORLD), mpi.rank, hosts,
                     gettid(), options.timeout_s);
  }
  start_limit.reset();
  startup.world = process_seconds() - startup.program - startup.mpi;
}

void Runtime::Impl::find_place() {
  std::unordered_map<std::string_view, int> seen;
  std::vector<CpuMask> masks;  // of the ranks of this machine
  std::vector<Place> neighbours;
  std::size_t own_mask = 0;
  const Place& own = places[static_cast<std::size_t>(mpi.rank)];
  local_size = 0;
  for (int rank = 0; rank < mpi.size; ++rank) {
    const Place& place = places[static_cast<std::size_t>(rank)];
    const auto position = seen.emplace(place.node, static_cast<int>(seen.size())).first;
    node_of.push_back(position->second);
    if (rank == mpi.rank) {
      node = position->second;
      local_rank = local_size;
      own_mask = masks.size();
    }
    if (std::strcmp(place.node, own.node) == 0) ++local_size;
    if (std::strcmp(place.machine, own.machine) != 0) continue;
    masks.push_back(place.cpus);
    neighbours.push_back(place);
  }
  nodes = static_cast<int>(seen.size());
  cores = cores_within(limit_by_scheduler(share_cores(masks)[own_mask], local_size),
                       quota_of(neighbours, own_mask));
}

std::unique_ptr<Communicator> Runtime::Impl::make_world() {
  std::vector<int> members;
  for (int rank = 0; rank < mpi.size; ++rank) members.push_back(rank);
  recorder.impl().add_lane(0, {"world", members});
  if (mpi.size == 1) return make_self_communicator("world", 0, 0, /*host_only=*/true);
  auto plan = add_plan("world", members);
  return make_mpi_communicator(services(/*host_only=*/true), "world", std::move(members), mpi.rank,
                               0, OwnedComm::duplicate(MPI_COMM_WORLD), std::move(plan));
}

std::shared_ptr<CommunicatorPlan> Runtime::Impl::add_plan(const std::string& name,
                                                          const std::vector<int>& ranks) {
  auto plan = std::make_shared<CommunicatorPlan>(
      CommunicatorPlan{.algorithms = options.algorithms, .blocks = blocks_of(ranks)});
  planned.push_back({name, ranks, plan});
  return plan;
}

std::shared_ptr<const RankBlocks> Runtime::Impl::blocks_of(const std::vector<int>& ranks) const {
  if (node_of.empty()) return nullptr;  // the world, through which the ranks learn of their nodes
  std::vector<int> nodes_of_ranks;
  for (const int rank : ranks) nodes_of_ranks.push_back(node_of[static_cast<std::size_t>(rank)]);
  return std::make_shared<RankBlocks>(static_cast<int>(ranks.size()),
                                      std::vector<std::vector<int>>{std::move(nodes_of_ranks)});
}

void Runtime::Impl::use_device(std::shared_ptr<cuda::Runtime> cuda, int device,
                               DeviceBackend backend, const NcclTuning& tuning) {
  if (mpi.size == 1) return;  // communicators of one rank only need the stream
  cuda->set_device(device);   // this thread allocates memory below
  engine.prepare_thread([cuda, device] {
    try {
      cuda->set_device(device);
    } catch (const Error&) {  // the next call throws it again
    }
  });
  if (backend == DeviceBackend::kNccl) {
    carrier = make_nccl_carrier({.cuda = std::move(cuda),
                                 .device = device,
                                 .engine = &engine,
                                 .recorder = &recorder,
                                 .timeout_s = options.timeout_s,
                                 .on_fault = [this](const auto& f) { end_unless_main_does(f); },
                                 .tuning = tuning},
                                *world, hosts);
    watchdog->set_last_act([this] { carrier->abort(); });
    world = carrier->guard(std::move(world));
    return;
  }
  staging = std::make_shared<DeviceStaging>(
      std::move(cuda), device,
      StagingOptions{.pinned_limit = memory_of_host() / 2 / static_cast<std::size_t>(local_size),
                     .direct = world->agree(mpi_device_support().direct)});
}

// Operations on GPUs have a lane of their own, because their order is not that of MPI's operations.
// `earlier` as in lane_of.
std::unique_ptr<Communicator> Runtime::Impl::with_device(std::unique_ptr<Communicator> host,
                                                         int earlier) {
  std::vector<int> members;
  for (int member = 0; member < host->size(); ++member) {
    members.push_back(host->world_rank(member));
  }
  GroupLabel label = host->label();
  label.name += " on GPUs";
  const int lane = lane_of(label.name, members, earlier);
  recorder.impl().add_lane(lane, {std::move(label), members});
  return carrier->extend(std::move(host), lane);
}

std::unique_ptr<Communicator> Runtime::Impl::group(const GroupLabel& label,
                                                   const std::vector<int>& ranks, bool host_only) {
  const std::string& name = label.name;
  const auto own = std::ranges::find(ranks, mpi.rank);
  TRIREME_CHECK(own != ranks.end(), fmt::format("rank {} is not in the group {}", mpi.rank, name));
  const int earlier = groups_made[{name, ranks}]++;
  const int lane = lane_of(name, ranks, earlier);
  recorder.impl().add_lane(lane, {label, ranks});
  if (ranks.size() == 1) return make_self_communicator(label, mpi.rank, lane, host_only);
  recorder.impl().add_lane(lane | kLibraryLaneBit, {label, ranks});
  const std::uint64_t id = recorder.begin(lane | kLibraryLaneBit, -1, false, "MPI_Comm_create", 0);
  // For all ranks in order, duplicates the world, because one can wait for that without spinning.
  const bool all = static_cast<int>(ranks.size()) == mpi.size && std::ranges::is_sorted(ranks);
  OwnedComm traffic =
      all ? OwnedComm::duplicate(MPI_COMM_WORLD)
          : OwnedComm::of_world_ranks(ranks.data(), static_cast<int>(ranks.size()),
                                      lane & 0x7fff);  // MPI promises that many tags
  recorder.end(id);
  const auto plan = add_plan(name, ranks);
  auto made =
      make_mpi_communicator(services(host_only), label, ranks,
                            static_cast<int>(own - ranks.begin()), lane, std::move(traffic), plan);
  if (planner) {
    // The plan travels by the default plan, before anyone else uses the communicator.
    *plan = plan_from_text(made->read_once([&] { return plan_to_text(planner(name, ranks)); }));
    TRIREME_CHECK(!plan->blocks || plan->blocks->ranks() == made->size(),
                  fmt::format("the plan of {} is for {} ranks", name, plan->blocks->ranks()));
  }
  if (!carrier) return made;
  return host_only ? carrier->guard(std::move(made)) : with_device(std::move(made), earlier);
}

void Runtime::Impl::finish(int status) {
  watchdog.reset();
  engine.stop();
  if (exit_guard) exit_guard->call_off();
  finish_job(status);
}

// The last barrier also exchanges the ranks' statuses, so that all end with the same status.
void Runtime::Impl::end_normally(ExitStatus status) {
  engine.drain();
  if (staging) staging->throw_fault();
  if (carrier) carrier->check();
  const int highest = world->all_reduce_host(static_cast<std::int32_t>(status), ReduceOp::kMax);
  claim_ending();
  if (carrier) carrier->close();
  finish(highest);
}

// If NCCL has failed, sums that the host used are wrong, and a later exception may follow from
// them. So NCCL's fault counts.
std::exception_ptr Runtime::Impl::first_fault(std::exception_ptr exception) const {
  try {
    if (carrier) carrier->check();
  } catch (...) {
    return std::current_exception();
  }
  return exception;
}

// The run ends only once. A thread that comes second waits for the end.
void Runtime::Impl::claim_ending() {
  while (ending->exchange(true)) pause();
}

// The main thread may wait in MPI for a message that no rank sends any more. This uses a thread of
// its own, because the engine's and the watchdog's threads are needed.
void Runtime::Impl::end_unless_main_does(const std::exception_ptr& fault) {
  const Fault own = describe_exception(fault, mpi.rank);
  try {
    start_thread("the end of the run", [this, own, ending = ending] {
      usleep(static_cast<useconds_t>(kMainComesSeconds * 1e6));
      if (ending->exchange(true)) return;
      const ExitTimer deadline(kFaultSeconds, own.status);
      tell_and_abort(own, exchange_fault(own));
    }).detach();
  } catch (const Error&) {
    report_line(fmt::format("{}: {}", who(mpi.rank), own.text));
    const ExitTimer deadline(kMainComesSeconds + kFaultSeconds, own.status);  // lives on
  }
}

std::vector<Fault> Runtime::Impl::exchange_fault(const Fault& own) {
  if (watchdog) return watchdog->exchange_fault(own);
  // The first rank's abort keeps others, which may have the same fault, from saying it again.
  if (mpi.rank > 0) usleep(kFirstSpeaksMicroseconds);
  return {own};
}

void Runtime::Impl::end_with_fault(const std::exception_ptr& exception) {
  claim_ending();
  const Fault own = describe_exception(first_fault(exception), mpi.rank);
  // NCCL and CUDA may not return once they have failed.
  std::optional<ExitTimer> deadline;
  if (carrier) deadline.emplace(kFaultSeconds, own.status);
  engine.stop();  // the buffers of operations in flight may be gone
  const std::vector<Fault> known = exchange_fault(own);
  const bool same = std::ranges::all_of(known, [&](const Fault& f) { return f.text == own.text; });
  if (same && static_cast<int>(known.size()) == mpi.size) {
    if (mpi.rank == 0) report_line(own.text);
    if (carrier) carrier->abort();
    finish(own.status);
  }
  tell_and_abort(own, known);
}

// May be called from any thread.
void Runtime::Impl::tell_and_abort(const Fault& own, const std::vector<Fault>& known) {
  // A rank that lost another one is a victim if some other rank reports what happened.
  const Fault& cause = cause_of(known);
  const bool victim = own.lost_rank() && !cause.lost_rank();
  const auto first =
      std::ranges::find_if(known, [&](const Fault& fault) { return fault.text == own.text; });
  if (first->rank == mpi.rank && !victim) {
    report_line(fmt::format("{}: {}", who(mpi.rank), own.text));
  }
  if (exit_guard) exit_guard->call_off();
  usleep(100'000);  // so that ranks with another fault can report it
  if (carrier) carrier->abort();
  abort_job(cause.status);  // the same on all
}

Runtime::Runtime(RuntimeOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Runtime::Runtime() : Runtime(RuntimeOptions()) {}
Runtime::~Runtime() = default;

Communicator& Runtime::world() {
  return *impl_->world;
}
int Runtime::rank() const {
  return impl_->mpi.rank;
}
int Runtime::size() const {
  return impl_->mpi.size;
}
int Runtime::node() const {
  return impl_->node;
}
int Runtime::nodes() const {
  return impl_->nodes;
}
int Runtime::local_rank() const {
  return impl_->local_rank;
}
int Runtime::local_size() const {
  return impl_->local_size;
}
const std::string& Runtime::host() const {
  return impl_->hosts[static_cast<std::size_t>(impl_->mpi.rank)];
}
const Runtime::Startup& Runtime::startup() const {
  return impl_->startup;
}
const std::vector<std::string>& Runtime::hosts() const {
  return impl_->hosts;
}
void Runtime::use_algorithms(AlgorithmTable algorithms) {
  impl_->options.algorithms = std::move(algorithms);
}

void Runtime::use_planner(CommunicatorPlanner planner) {
  impl_->planner = std::move(planner);
}
const std::vector<Runtime::PlannedCommunicator>& Runtime::communicators() const {
  return impl_->planned;
}
FlightRecorder& Runtime::recorder() {
  return impl_->recorder;
}
int Runtime::cores() const {
  return impl_->cores;
}

RunningClock& Runtime::clock() {
  return impl_->clock;
}

void Runtime::set_timeout(double seconds) {
  // A rank that waits for a file is not to be taken for lost.
  limit_file_patience(std::chrono::milliseconds(static_cast<std::int64_t>(500.0 * seconds)));
  impl_->options.timeout_s = seconds;
  if (impl_->watchdog) impl_->watchdog->set_timeout(seconds);
  if (impl_->carrier) impl_->carrier->set_timeout(seconds);
}

void Runtime::use_device(std::shared_ptr<cuda::Runtime> cuda, int device, DeviceBackend backend,
                         const NcclTuning& tuning) {
  impl_->use_device(std::move(cuda), device, backend, tuning);
}

std::string Runtime::why_no_capture() const {
  if (!impl_->staging) return "";
  return "MPI carries tensors of the GPU by way of the host (--comm.backend nccl does not)";
}

std::unique_ptr<CapturedCommunication> Runtime::capture(const Stream& stream,
                                                        const std::int64_t* number) {
  if (!impl_->carrier) return std::make_unique<CapturedCommunication>();
  return impl_->carrier->capture(stream, number);
}

Runtime::DeviceUse::DeviceUse(Runtime& runtime)
    : runtime_(runtime), exceptions_(std::uncaught_exceptions()) {}

Runtime::DeviceUse::~DeviceUse() {
  Impl& impl = *runtime_.impl_;
  if (std::uncaught_exceptions() == exceptions_) {
    impl.engine.drain();
    return;
  }
  end_after_fault(impl.who(impl.mpi.rank), [&impl] {
    if (impl.carrier) impl.carrier->abort();
    impl.engine.stop();
  });
}

std::unique_ptr<Communicator> Runtime::group(const GroupLabel& label,
                                             const std::vector<int>& ranks) {
  return impl_->group(label, ranks, /*host_only=*/false);
}

std::unique_ptr<Communicator> Runtime::host_group(const GroupLabel& label,
                                                  const std::vector<int>& ranks) {
  return impl_->group(label, ranks, /*host_only=*/true);
}

void Runtime::run(const std::function<ExitStatus()>& body) {
  std::exception_ptr exception;
  ExitStatus status = ExitStatus::kDone;
  try {
    status = body();
    impl_->end_normally(status);
  } catch (...) {
    exception = std::current_exception();
  }
  impl_->end_with_fault(exception);
}

}  // namespace trireme

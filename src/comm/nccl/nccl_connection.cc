#include "comm/nccl/nccl_connection.h"

#include <utility>

#include <fmt/format.h>
#include <sched.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/thread.h"

namespace trireme::nccl {

std::string version_text(int version) {
  return fmt::format("{}.{}.{}", version / 10000, version % 10000 / 100, version % 100);
}

std::string why_not(const NcclTuning& tuning, int version) {
  struct Need {
    bool used;
    const char* key;
    int oldest;
  };
  for (const Need& need :
       {Need{tuning.traffic_class.has_value(), "nccl.traffic_class", 22600},
        Need{tuning.collnet.has_value(), "nccl.collnet", 22700},
        Need{tuning.channels_per_peer.has_value(), "nccl.channels_per_peer", 22800},
        Need{!tuning.policy.empty(), "nccl.policy", tuning.policy == "zero" ? 22800 : 22700},
        Need{tuning.nvls_channels.has_value(), "nccl.nvls_channels", 22700}}) {
    if (need.used && version < need.oldest) {
      return fmt::format("{} needs NCCL {} or newer, but this is {}: leave it out", need.key,
                         version_text(need.oldest), version_text(version));
    }
  }
  return "";
}

void check_version(int version, const std::string& path) {
  if (version >= kOldestVersion) return;
  throw NcclError(
      fmt::format("NCCL {} ({}) is too old, {} or newer is needed: load a newer module of NCCL or "
                  "set LD_LIBRARY_PATH; --comm.backend mpi does without",
                  version_text(version), path, version_text(kOldestVersion)));
}

void throw_fault(Library& library, CommHandle comm, const std::string& what, Result result) {
  const std::string text = fmt::format("NCCL could not {}: {}", what, library.words(result, comm));
  // A peer is gone. The rank with the fault reports the fault itself.
  if (result == Result::kRemoteError) throw LostRankError(text);
  throw NcclError(text);
}

void Session::add(const std::shared_ptr<Connection>& connection) {
  const std::lock_guard lock(mutex_);
  std::erase_if(connections_, [](const auto& known) { return known.expired(); });
  connections_.push_back(connection);
}

void Session::check() const {
  const std::lock_guard lock(mutex_);
  if (fault_) std::rethrow_exception(fault_);
}

void Session::fail(std::exception_ptr fault) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (fault_) return;
    fault_ = fault;
  }
  if (parts_.on_fault) parts_.on_fault(std::move(fault));  // an abort may not return
  // A capture holds communicators as a graph does. The capturing thread meets the fault, ends the
  // capture, and then aborts.
  if (capture_ == nullptr) abort();
}

Session::LentStream Session::lend_stream() {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<cuda::OwnedStream> stream;
  if (idle_streams_.empty()) {
    stream = std::make_unique<cuda::OwnedStream>(parts_.cuda, parts_.device, /*urgent=*/true);
  } else {
    stream = std::move(idle_streams_.back());
    idle_streams_.pop_back();
  }
  return {stream.release(), [this](cuda::OwnedStream* lent) {
            const std::lock_guard again(mutex_);
            idle_streams_.emplace_back(lent);
          }};
}

Session::~Session() {
  for (std::byte* memory : left_memory_) library_->free(memory);
}

Buffer Session::allocate(std::size_t bytes) {
  parts_.cuda->set_device(parts_.device);
  void* memory = nullptr;
  if (library_->allocate(memory, bytes) != Result::kSuccess) return nullptr;
  const std::lock_guard lock(mutex_);
  memory_.emplace(static_cast<std::byte*>(memory), false);
  return {static_cast<std::byte*>(memory), [this](std::byte* given) { give_back(given); }};
}

void Session::give_back(std::byte* memory) noexcept {
  const bool may_wait = std::uncaught_exceptions() == 0;
  if (may_wait) wait_for_device();
  const std::lock_guard lock(mutex_);
  memory_.erase(memory);
  if (may_wait) {
    library_->free(memory);
  } else {
    left_memory_.push_back(memory);
  }
}

std::optional<Library::Registration> Session::kind_of(const Buffer& memory) const {
  using Kind = Library::Registration;
  const std::lock_guard lock(mutex_);
  const auto known = memory_.find(memory.get());
  if (known == memory_.end()) return std::nullopt;
  return library_->has_windows() && !known->second ? Kind::kWindow : Kind::kBuffer;
}

void Session::set_in_window(const Buffer& memory, bool in_window) {
  const std::lock_guard lock(mutex_);
  memory_.at(memory.get()) = in_window;
}

std::vector<std::shared_ptr<Connection>> Session::open_connections() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Connection>> open;
  for (const auto& known : connections_) {
    if (auto connection = known.lock()) open.push_back(std::move(connection));
  }
  return open;
}

void Session::add_graph(const void* owner, std::function<void()> give_up) {
  const std::lock_guard lock(mutex_);
  held_by_graphs_ = true;
  graphs_.insert_or_assign(owner, std::move(give_up));
}

void Session::remove_graph(const void* owner) {
  const std::lock_guard lock(mutex_);
  graphs_.erase(owner);
}

// ncclCommAbort returns when no graph holds an operation of the communicator any more: the graphs
// must have ended, and their last launch must be over. That launch may be waiting in an operation
// of another communicator, so all communicators are aborted at the same time.
void Session::abort() noexcept {
  std::map<const void*, std::function<void()>> graphs;
  {
    const std::lock_guard lock(mutex_);
    graphs = graphs_;
  }
  for (const auto& [owner, give_up] : graphs) give_up();
  const auto connections = open_connections();
  if (!held_by_graphs_) {
    for (const auto& connection : connections) connection->abort();
    return;
  }
  std::vector<std::jthread> all;
  for (const auto& connection : connections) {
    try {
      all.push_back(start_thread("an abort of NCCL", [&connection] { connection->abort(); }));
    } catch (const Error&) {
      connection->abort();  // the best that is left: it may wait for those that follow
    }
  }
}

void Session::abort(Connection& connection) noexcept {
  held_by_graphs_ ? abort() : connection.abort();
}

void Session::close() noexcept {
  for (const auto& connection : open_connections()) connection->close();
}

void Connection::open(int ranks, const UniqueId& id, int rank) {
  const OrderGuard::Entry entry(session_.guard(), "the start of " + name_);
  const DeviceCarrierParts& parts = session_.parts();
  parts.cuda->set_device(parts.device);
  Result result = Result::kSuccess;
  {
    const std::lock_guard lock(mutex_);
    result = session_.library().init_rank(handle_, name_, ranks, id, rank, parts.tuning);
  }
  settle("start", result);
}

void Connection::call(const char* what,
                      const std::function<Result(Library&, CommHandle)>& function) {
  const OrderGuard::Entry entry(session_.guard(), fmt::format("{} of {}", what, name_));
  settle(what, make(function));
}

Result Connection::make(const std::function<Result(Library&, CommHandle)>& function) {
  session_.check();  // throws the fault for which it was aborted
  const std::lock_guard lock(mutex_);
  if (gone_) session_.check();  // it was aborted since then
  TRIREME_CHECK(!gone_, fmt::format("communicator {} of NCCL was used after its end", name_));
  return function(session_.library(), handle_);
}

Result Connection::state() {
  return make([](Library& library, CommHandle comm) {
    Result state = Result::kSuccess;
    const Result result = library.async_error(comm, state);
    return result == Result::kSuccess ? state : result;
  });
}

void Connection::settle(const char* what, Result result) {
  const Stopwatch watch;
  // Some calls return success while their work goes on, ncclCommWindowRegister of 2.28 for one, and
  // the next call would find the communicator busy. Only the state is sure.
  if (result == Result::kSuccess) result = state();
  while (result == Result::kInProgress) {
    if (watch.seconds() > session_.timeout_s()) {
      const auto fault = std::make_exception_ptr(LostRankError(
          fmt::format("NCCL did not get through with {} of {} in {:g} s: a rank of it is missing",
                      what, name_, session_.timeout_s())));
      session_.fail(fault);
      std::rethrow_exception(fault);
    }
    sched_yield();
    result = state();
  }
  if (result != Result::kSuccess) fail(what, result);
}

void Connection::fail(const char* what, Result result) {
  std::exception_ptr fault;
  try {
    const std::lock_guard lock(mutex_);
    const std::string call =
        session_.capture() == nullptr
            ? fmt::format("carry out {} of {}", what, name_)
            : fmt::format("capture {} of {} (--cuda.graphs false does without)", what, name_);
    throw_fault(session_.library(), handle_, call, result);
  } catch (...) {
    fault = std::current_exception();
  }
  session_.fail(fault);
  session_.check();  // throws the first fault, which may be another one
  std::rethrow_exception(fault);
}

void Connection::check() {
  Result result = Result::kSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    Result state = Result::kSuccess;
    result = session_.library().async_error(handle_, state);
    if (result == Result::kSuccess) result = state;
  }
  // kInProgress: the main thread is entering an operation right now.
  if (result != Result::kSuccess && result != Result::kInProgress) fail("what runs", result);
}

void Connection::close() noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (gone_) return;
  }
  try {
    call("finalize", [](Library& library, CommHandle comm) { return library.finalize(comm); });
    const std::lock_guard lock(mutex_);
    if (gone_) return;
    gone_ = true;
    session_.library().destroy(std::exchange(handle_, nullptr));
  } catch (...) {
    abort();
  }
}

Connection::Registration* Connection::register_memory(Library::Registration kind, std::byte* memory,
                                                      std::size_t bytes, std::string& refusal) {
  constexpr const char* kWhat = "register memory";
  const OrderGuard::Entry entry(session_.guard(), fmt::format("{} of {}", kWhat, name_));
  Registration& made = registrations_.emplace_back(kind);
  const Result result = make([&](Library& library, CommHandle comm) {
    const Result at_once = library.register_memory(comm, kind, memory, bytes, made.handle);
    if (at_once != Result::kSuccess) refusal = library.words(at_once, comm);
    return at_once;
  });
  const bool error = result != Result::kSuccess && result != Result::kInProgress;
  if (error && state() == Result::kSuccess) return nullptr;
  refusal.clear();
  settle(kWhat, result);
  return made.handle == nullptr ? nullptr : &made;
}

void Connection::deregister(Registration& registration) noexcept {
  const std::lock_guard lock(mutex_);
  if (!gone_) session_.library().deregister_memory(handle_, registration.kind, registration.handle);
}

void Connection::abort() noexcept {
  const std::lock_guard lock(mutex_);
  gone_ = true;
  if (handle_ != nullptr) session_.library().abort(std::exchange(handle_, nullptr));
}

}  // namespace trireme::nccl

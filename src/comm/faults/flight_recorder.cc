#include "trireme/comm/flight_recorder.h"

#include <utility>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

#include "comm/faults/recorder_impl.h"

namespace trireme {

std::uint64_t FlightRecorder::Impl::begin(const LaneKey& key, std::string_view name,
                                          std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = ++last_id_;
  under_way_[id] = Operation{.lane = key.lane,
                             .peer = key.peer,
                             .sends = key.sends,
                             .name = std::string(name),
                             .sequence = ++begun_[key],
                             .bytes = bytes,
                             .begin_ns = now_ns()};
  return id;
}

void FlightRecorder::Impl::end(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  auto node = under_way_.extract(id);
  if (node.empty()) return;
  node.mapped().end_ns = now_ns();
  if (tracing) trace_.operations.push_back(node.mapped());
  finished_.push_back(node.mapped());
  if (finished_.size() > kKept) finished_.pop_front();
}

void FlightRecorder::Impl::add_lane(int lane, LaneInfo info) {
  const std::lock_guard lock(mutex_);
  lanes_.insert_or_assign(lane, std::move(info));
}

std::int64_t FlightRecorder::Impl::begin_activity() {
  if (!tracing) return 0;
  return stream_trace_ ? stream_trace_->mark() : now_ns();
}

// Drops a device's error, because the device reports it again at the next call.
void FlightRecorder::Impl::end_activity(Activity::Kind kind, std::string_view name,
                                        std::int64_t number, std::int64_t begin) noexcept try {
  if (begin == 0 || !tracing) return;
  Activity activity{.kind = kind, .name = std::string(name), .number = number};
  if (stream_trace_) return stream_trace_->add(std::move(activity), begin, stream_trace_->mark());
  activity.begin_ns = begin;
  activity.end_ns = now_ns();
  const std::lock_guard lock(mutex_);
  trace_.activities.push_back(std::move(activity));
} catch (const Error&) {
}

const FlightRecorder::Phase* FlightRecorder::Impl::enter(const Phase& phase) {
  if (!watch_) return nullptr;
  watch_(phase.name_, phase.number_);
  return std::exchange(open_phase_, &phase);
}

void FlightRecorder::Impl::leave(const Phase* outer) {
  if (!watch_) return;
  open_phase_ = outer;
  if (outer == nullptr) return watch_({}, -1);
  watch_(outer->name_, outer->number_);
}

void FlightRecorder::Impl::add_wait(int lane, std::string_view operation, std::int64_t begin_ns,
                                    std::int64_t end_ns) {
  exposed_ns += end_ns - begin_ns;
  const std::lock_guard lock(mutex_);
  if (!tracing || stream_trace_) return;  // a waiting host does not hold up a GPU
  const auto info = lanes_.find(lane);
  const std::string of = info == lanes_.end() ? "" : " of " + info->second.label.name;
  trace_.activities.push_back({.kind = Activity::Kind::kWait,
                               .name = std::string(operation) + of,
                               .begin_ns = begin_ns,
                               .end_ns = end_ns});
}

void FlightRecorder::Impl::start_trace(const Stream& stream) {
  std::unique_ptr<StreamTrace> of_stream;
  if (stream.device().kind != DeviceKind::kCpu) of_stream = std::make_unique<StreamTrace>(stream);
  const std::lock_guard lock(mutex_);
  trace_ = {};
  stream_trace_ = std::move(of_stream);
  tracing = true;
}

Trace FlightRecorder::Impl::take_trace() {
  // This is done without the lock: the stream may wait for an operation that another thread ends,
  // and that thread takes the lock to record it.
  std::vector<Activity> of_stream;
  if (stream_trace_) of_stream = stream_trace_->finish();
  tracing = false;
  const std::lock_guard lock(mutex_);
  if (stream_trace_) trace_.activities = std::move(of_stream);
  stream_trace_.reset();
  for (const auto& [lane, info] : lanes_) trace_.lanes.emplace(lane, info.label);
  return std::exchange(trace_, {});
}

FlightRecorder::Impl::Snapshot FlightRecorder::Impl::snapshot() const {
  const std::lock_guard lock(mutex_);
  Snapshot result{.under_way = {}, .begun = begun_, .lanes = lanes_};
  for (const auto& [id, operation] : under_way_) result.under_way.push_back(operation);
  return result;
}

std::vector<Operation> FlightRecorder::Impl::under_way() const {
  return snapshot().under_way;
}

std::vector<Operation> FlightRecorder::Impl::finished() const {
  const std::lock_guard lock(mutex_);
  return {finished_.begin(), finished_.end()};
}

std::int64_t FlightRecorder::Impl::oldest_begin_ns() const {
  const std::lock_guard lock(mutex_);
  return under_way_.empty() ? 0 : under_way_.begin()->second.begin_ns;
}

FlightRecorder::FlightRecorder() : impl_(std::make_unique<Impl>()) {}
FlightRecorder::~FlightRecorder() = default;

double FlightRecorder::exposed_seconds() const {
  return static_cast<double>(impl_->exposed_ns.load()) * 1e-9;
}

void FlightRecorder::add_exposed(int lane, std::string_view operation, std::int64_t begin_ns,
                                 std::int64_t end_ns) {
  impl_->add_wait(lane, operation, begin_ns, end_ns);
}

void FlightRecorder::start_trace(const Stream& stream) {
  impl_->start_trace(stream);
}

Trace FlightRecorder::take_trace() {
  return impl_->take_trace();
}

void FlightRecorder::watch_phases(
    std::function<void(std::string_view name, std::int64_t number)> watch) {
  impl_->watch_phases(std::move(watch));
}

bool FlightRecorder::tracing() const {
  return impl_->tracing;
}

FlightRecorder::Phase::Phase(FlightRecorder& recorder, std::string_view name, std::int64_t number)
    : recorder_(recorder),
      name_(name),
      number_(number),
      begin_(recorder.impl().begin_activity()),
      outer_(recorder.impl().enter(*this)),
      range_(name, number) {}

FlightRecorder::Phase::~Phase() {
  recorder_.impl().leave(outer_);
  recorder_.impl().end_activity(Activity::Kind::kCompute, name_, number_, begin_);
}

FlightRecorder::StreamWait::StreamWait(FlightRecorder& recorder, const Stream& stream)
    : recorder_(recorder),
      begin_(recorder.impl().traces(stream) ? recorder.impl().begin_activity() : 0) {}

FlightRecorder::StreamWait::~StreamWait() {
  recorder_.impl().end_activity(Activity::Kind::kWait, "communication", -1, begin_);
}

std::vector<Operation> FlightRecorder::under_way() const {
  return impl_->under_way();
}

std::vector<Operation> FlightRecorder::finished() const {
  return impl_->finished();
}

std::uint64_t FlightRecorder::begin(int lane, int peer, bool sends, std::string_view name,
                                    std::size_t bytes) {
  return impl_->begin({lane, peer, sends}, name, bytes);
}

void FlightRecorder::end(std::uint64_t id) {
  impl_->end(id);
}

FlightRecorder::Scope::Scope(FlightRecorder& recorder, const Communicator& comm,
                             std::string_view name)
    : recorder_(recorder) {
  const int lane = comm.lane_id() | kLibraryLaneBit;
  LaneInfo info{.label = comm.label(), .members = {}};
  for (int member = 0; member < comm.size(); ++member) {
    info.members.push_back(comm.world_rank(member));
  }
  recorder.impl().add_lane(lane, std::move(info));
  id_ = recorder.begin(lane, -1, false, name, 0);
}

FlightRecorder::Scope::~Scope() {
  recorder_.end(id_);
}

}  // namespace trireme

#include "comm/faults/watchdog.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/exit_status.h"
#include "trireme/base/log.h"
#include "trireme/base/thread.h"

#include "comm/faults/ending.h"

namespace trireme {
namespace {

constexpr double kFaultGrace = 0.25;   // for the same fault to show on all ranks
constexpr double kLostGrace = 4.0;     // for the cause, while only lost ranks are known
constexpr double kAbortGrace = 5.0;    // for another rank's abort to end this one
constexpr double kSampleTime = 0.3;    // over which the main thread's processor time is measured
constexpr double kReportGrace = 3.0;   // after an alarm, for all reports; ranks may lack a core
constexpr double kPrinterGrace = 3.0;  // for the lowest answering judge to end the job
constexpr auto kCalm = std::chrono::milliseconds(50);
constexpr auto kHurried = std::chrono::milliseconds(2);

}  // namespace

Watchdog::Watchdog(FlightRecorder& recorder, RunningClock& clock, OwnedComm channel, int rank,
                   std::vector<std::string> hosts, int main_thread, double timeout_s)
    : recorder_(recorder),
      clock_(clock),
      channel_(std::move(channel)),
      rank_(rank),
      hosts_(std::move(hosts)),
      judges_(choose_judges(hosts_)),
      main_thread_(main_thread),
      timeout_s_(timeout_s),
      reports_(hosts_.size()),
      thread_(start_thread("the watchdog", [this] { run(); })) {}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::set_last_act(std::function<void()> act) {
  const std::lock_guard lock(mutex_);
  last_act_ = std::move(act);
}

std::vector<Fault> Watchdog::exchange_fault(const Fault& own) {
  auto answer = known_faults_.get_future();
  {
    const std::lock_guard lock(mutex_);
    posted_fault_ = own;
  }
  wake_.notify_all();
  // The thread may be stuck inside MPI, whose lock a hanging call may hold. Then continue alone.
  const double grace = kFaultGrace * 4 + (own.lost_rank() ? kLostGrace : 0.0);
  if (answer.wait_for(std::chrono::duration<double>(grace)) != std::future_status::ready) {
    return {own};
  }
  return answer.get();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, hurried() ? kHurried : kCalm,
                   [this] { return stopping_ || (posted_fault_ && !own_fault_); });
    if (stopping_) return;
    if (posted_fault_ && !own_fault_) own_fault_ = posted_fault_;
    lock.unlock();
    step();
    lock.lock();
  }
}

void Watchdog::step() {
  if (own_fault_ && !faults_.contains(rank_)) {
    add_fault(*own_fault_);
    send_to_all(Kind::kFault,
                std::string(1, static_cast<char>(own_fault_->status)) + own_fault_->text);
  }
  receive();
  std::erase_if(sent_, [](Message& message) {
    int done = 0;
    MPI_Test(&message.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
  if (!faults_.empty()) {
    exchange();
  } else {
    guard();
  }
}

void Watchdog::send_to_all(Kind kind, const std::string& body) {
  for (int peer = 0; peer < static_cast<int>(hosts_.size()); ++peer) send(kind, body, peer);
}

void Watchdog::tell(HangNews news, const std::string& body) {
  const Kind kind = news == HangNews::kReport ? Kind::kReport : Kind::kAlarm;
  const int ranks = static_cast<int>(hosts_.size());
  for (const int peer : receivers_of(news, rank_, judges_, ranks)) send(kind, body, peer);
}

// Ignores errors of single messages: a rank that cannot be reached simply does not answer.
void Watchdog::send(Kind kind, const std::string& body, int peer) {
  if (peer == rank_) return;
  Message& message = sent_.emplace_back();
  message.bytes = static_cast<char>(kind) + body;
  MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE, peer, 0,
            channel_.get(), &message.request);
}

void Watchdog::receive() {
  while (true) {
    int found = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, 0, channel_.get(), &found, &handle, &status) != MPI_SUCCESS ||
        found == 0) {
      break;
    }
    int size = 0;
    MPI_Get_count(&status, MPI_BYTE, &size);
    Message& message = coming_.emplace_back();
    message.peer = status.MPI_SOURCE;
    message.bytes.resize(static_cast<std::size_t>(size));
    MPI_Imrecv(message.bytes.data(), size, MPI_BYTE, &handle, &message.request);
  }
  std::erase_if(coming_, [this](Message& message) {
    int done = 0;
    MPI_Test(&message.request, &done, MPI_STATUS_IGNORE);
    if (done != 0) take_in(message.peer, message.bytes);
    return done != 0;
  });
}

void Watchdog::take_in(int peer, const std::string& bytes) {
  if (bytes.empty()) return;
  switch (static_cast<Kind>(bytes[0])) {
    case Kind::kFault:
      if (bytes.size() < 2) return;
      add_fault({peer, static_cast<unsigned char>(bytes[1]), bytes.substr(2)});
      return;
    case Kind::kAlarm:
      if (alarm_ns_ == 0) raise_alarm();
      return;
    case Kind::kReport:
      if (alarm_ns_ == 0) raise_alarm();
      reports_[static_cast<std::size_t>(peer)] =
          decode_report(std::string_view(bytes).substr(1), static_cast<int>(hosts_.size()));
      return;
  }
}

// The first cause restarts the grace time, so that its rank can report it before any other rank
// ends the job.
void Watchdog::add_fault(Fault fault) {
  const bool first_cause = !cause_known_ && !fault.lost_rank();
  if (faults_.empty() || first_cause) fault_ns_ = now_ns();
  cause_known_ = cause_known_ || first_cause;
  faults_[fault.rank] = std::move(fault);
}

std::vector<Fault> Watchdog::known() const {
  std::vector<Fault> known;
  for (const auto& [rank, fault] : faults_) known.push_back(fault);
  return known;
}

void Watchdog::exchange() {
  const double age = seconds_since(fault_ns_);
  if (!own_fault_) {
    // The rank with the fault ends the job. If that does not reach this rank, it ends by itself.
    if (age > kAbortGrace) _exit(cause_of(known()).status);
    return;
  }
  const double grace = cause_known_ ? kFaultGrace : kLostGrace;
  if (own_fault_answered_ || (faults_.size() < hosts_.size() && age < grace)) return;
  // The messages have been sent by now or never will be: they are too small to wait for receivers.
  own_fault_answered_ = true;
  known_faults_.set_value(known());
}

void Watchdog::guard() {
  if (alarm_ns_ == 0) {
    const std::int64_t oldest = recorder_.impl().oldest_begin_ns();
    if (oldest != 0 && seconds_since(oldest) > timeout_s_) {
      raise_alarm();
      tell(HangNews::kFound, {});
    }
    return;
  }
  const double age = seconds_since(alarm_ns_);
  if (!reported_ && age > kSampleTime) {
    reported_ = true;
    const bool sleeps = slept(main_sample_, sample_thread(main_thread_));
    const RankReport own = make_report(recorder_.impl().snapshot(), sleeps);
    tell(HangNews::kReport, encode(own));
    if (judges()) reports_[static_cast<std::size_t>(rank_)] = own;
  }
  const bool all = std::ranges::all_of(reports_, [](const auto& r) { return r.has_value(); });
  if (all || age > kReportGrace) end_the_hang();
}

void Watchdog::raise_alarm() {
  alarm_ns_ = now_ns();
  main_sample_ = sample_thread(main_thread_);
  tell(HangNews::kAlarm, {});
}

// The lowest judge that answers prints the verdict and ends the job. The other ranks wait for that,
// then end by themselves.
void Watchdog::end_the_hang() {
  constexpr int kStatus = static_cast<int>(ExitStatus::kHangOrLostRank);
  const auto answers = [&](int judge) {
    return reports_[static_cast<std::size_t>(judge)].has_value();
  };
  const auto speaker = std::ranges::find_if(judges_, answers);
  if (speaker != judges_.end() && *speaker == rank_) {
    report_line(analyse_hang(reports_, hosts_, timeout_s_).line);
    act_at_last();
    abort_job(kStatus);
  }
  const std::int64_t begin = now_ns();
  while (seconds_since(begin) < kPrinterGrace) {
    receive();  // also lets MPI send our own report
    usleep(2000);
  }
  act_at_last();
  _exit(kStatus);
}

void Watchdog::act_at_last() {
  const ExitTimer deadline(1.0, static_cast<int>(ExitStatus::kHangOrLostRank));
  const std::lock_guard lock(mutex_);
  if (last_act_) last_act_();
}

}  // namespace trireme

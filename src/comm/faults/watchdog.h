// One thread per rank that notices when the job hangs, finds out which ranks are to blame, and
// passes faults between ranks. It has a communicator of its own and waits for no message, so it
// works even if the operations that it guards are stuck.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "trireme/base/running_clock.h"

#include "comm/faults/fault.h"
#include "comm/faults/hang_analysis.h"
#include "comm/faults/rank_report.h"
#include "comm/mpi/mpi_util.h"

namespace trireme {

class Watchdog {
 public:
  // `hosts` has the hosts of all ranks of the world. `main_thread` is the kernel's id of the thread
  // to watch. Time is that of `clock`, so a suspended job is no hang.
  Watchdog(FlightRecorder& recorder, RunningClock& clock, OwnedComm channel, int rank,
           std::vector<std::string> hosts, int main_thread, double timeout_s);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void set_timeout(double seconds) { timeout_s_ = seconds; }
  // Sets what the watchdog's thread does, for at most a second, before a hang ends the process.
  void set_last_act(std::function<void()> act);

  // Tells the other ranks this rank's fault and waits a short time for theirs, or until all have
  // reported. It waits longer while ranks are lost and no rank has reported a cause. Returns the
  // faults known then, by rank, this rank's own included. Call it once.
  std::vector<Fault> exchange_fault(const Fault& own);

 private:
  enum class Kind : char { kFault = 'F', kAlarm = 'A', kReport = 'R' };
  struct Message {  // in flight; lives until MPI is done with it
    int peer = 0;
    std::string bytes;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void run();
  void step();
  void send_to_all(Kind kind, const std::string& body);
  void tell(HangNews news, const std::string& body);
  void send(Kind kind, const std::string& body, int peer);
  void receive();
  void take_in(int peer, const std::string& bytes);
  void add_fault(Fault fault);
  std::vector<Fault> known() const;
  void exchange();
  void guard();
  void raise_alarm();
  bool judges() const { return std::ranges::binary_search(judges_, rank_); }
  void end_the_hang();
  void act_at_last();
  bool hurried() const { return alarm_ns_ != 0 || !faults_.empty() || own_fault_.has_value(); }

  double seconds_since(std::int64_t ns) { return clock_.seconds_since(ns); }

  FlightRecorder& recorder_;
  RunningClock& clock_;
  OwnedComm channel_;
  const int rank_;
  const std::vector<std::string> hosts_;
  const std::vector<int> judges_;  // the ranks that get the reports of a hang
  const int main_thread_;
  std::atomic<double> timeout_s_;

  std::mutex mutex_;  // guards stopping_, posted_fault_ and last_act_
  std::condition_variable wake_;
  bool stopping_ = false;
  std::optional<Fault> posted_fault_;
  std::promise<std::vector<Fault>> known_faults_;
  std::function<void()> last_act_;

  // Used by the thread alone.
  std::list<Message> sent_, coming_;
  std::map<int, Fault> faults_;
  std::optional<Fault> own_fault_;
  bool own_fault_answered_ = false;
  bool cause_known_ = false;   // a fault other than a lost rank is known
  std::int64_t fault_ns_ = 0;  // when the first fault became known, then when the first cause did
  std::int64_t alarm_ns_ = 0;  // when the alarm was raised; 0: no alarm
  ThreadSample main_sample_;
  bool reported_ = false;
  std::vector<std::optional<RankReport>> reports_;  // of all ranks, on a judge
  std::jthread thread_;
};

}  // namespace trireme

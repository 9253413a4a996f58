#include "io/prepare/prepare_ranks.h"

#include <chrono>
#include <exception>
#include <span>
#include <thread>
#include <utility>

#include "trireme/base/clock.h"
#include "trireme/io/together.h"

namespace trireme {
namespace {

using namespace std::chrono_literals;

// Ends the body of a rank where another has a fault.
struct OtherFailed {};

// Sums of what the ranks have done, one after the other, while they work. A rank that is through
// goes on until all are, or one has a fault; so all take part in as many sums.
class Sums {
 public:
  Sums(Communicator& world, const PrepareRanks::Tell& tell) : world_(world), tell_(tell) {}

  void beat(const PrepareRanks::Done& own) {
    own_ = own;
    if (!work_.done()) return;
    take();
    if (has_fault_) throw OtherFailed();
    if (watch_.seconds() < kPause) return;
    begin(/*through=*/false, /*fault=*/false);
  }

  // Sets the fault if the teller throws.
  void finish(std::exception_ptr& fault) {
    while (true) {
      while (!work_.done()) std::this_thread::sleep_for(2ms);
      try {
        take();
      } catch (...) {
        if (!fault) fault = std::current_exception();
      }
      if (has_fault_ || all_through_) return;
      begin(/*through=*/true, fault != nullptr);
    }
  }

 private:
  static constexpr double kPause = 0.1;  // seconds between two sums, at least

  void begin(bool through, bool fault) {
    watch_ = Stopwatch();
    under_way_ = true;
    values_ = {static_cast<std::int64_t>(own_.bytes_read), static_cast<std::int64_t>(own_.made),
               through ? 1 : 0, fault ? 1 : 0};
    work_ =
        world_.all_reduce(Stream(), Tensor::wrap(std::span<std::int64_t>(values_)), ReduceOp::kSum);
  }

  void take() {
    if (!std::exchange(under_way_, false)) return;
    work_.wait_host();
    all_through_ = values_[2] == world_.size();
    has_fault_ = values_[3] > 0;
    tell_({static_cast<std::uint64_t>(values_[0]), static_cast<std::uint64_t>(values_[1])});
  }

  Communicator& world_;
  const PrepareRanks::Tell& tell_;
  PrepareRanks::Done own_;
  Stopwatch watch_;
  std::array<std::int64_t, 4> values_{};
  Work work_;
  bool under_way_ = false, all_through_ = false, has_fault_ = false;
};

}  // namespace

std::string PrepareRanks::read_once(const std::function<std::string()>& read) {
  return alone() ? read() : world_->read_once(read);
}

std::vector<std::string> PrepareRanks::gather(std::string text) {
  if (alone()) return {std::move(text)};
  return gather_text(*world_, std::move(text));
}

void PrepareRanks::together(const std::function<void()>& body) {
  alone() ? body() : run_together(*world_, body);
}

void PrepareRanks::work_together(const std::function<void(const Beat&)>& body, const Tell& tell) {
  if (alone()) {
    body(tell);
    return;
  }
  std::exception_ptr fault;
  Sums sums(*world_, tell);
  try {
    body([&](const Done& own) { sums.beat(own); });
  } catch (const OtherFailed&) {
  } catch (...) {
    fault = std::current_exception();
  }
  sums.finish(fault);
  run_together(*world_, [&] {
    if (fault) std::rethrow_exception(fault);
  });
}

}  // namespace trireme

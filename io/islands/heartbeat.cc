#include <algorithm>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/thread.h"
#include "trireme/io/island_member.h"

namespace trireme {
namespace {

constexpr std::string_view kLeft = "left";
// A gap between two looks counts for at most this part of the silence that means death.
constexpr double kGapsInSilence = 4;

}  // namespace

Heartbeat::Heartbeat(IslandFolder& folder, MemberName member)
    : folder_(folder), member_(std::move(member)) {}

void Heartbeat::beat() {
  folder_.replace(fmt::format("islands/{}/heartbeat", member_.name),
                  fmt::format("{} {}\n", member_.incarnation, ++beats_));
}

void Heartbeat::leave() {
  folder_.replace(fmt::format("islands/{}/heartbeat", member_.name),
                  fmt::format("{} {}\n", member_.incarnation, kLeft));
}

HeartbeatThread::HeartbeatThread(IslandFolder& folder, MemberName member, double seconds)
    : heartbeat_(folder, std::move(member)) {
  heartbeat_.beat();
  thread_ = start_thread("the heartbeat", [this, seconds] {
    std::unique_lock lock(mutex_);
    const auto end = [this] { return ending_; };
    while (!wake_.wait_for(lock, std::chrono::duration<double>(seconds), end)) {
      try {
        heartbeat_.beat();
      } catch (const Error&) {  // the next one may come through
      }
    }
  });
}

HeartbeatThread::~HeartbeatThread() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
  try {
    heartbeat_.leave();
  } catch (const Error&) {  // the others find out by the silence
  }
}

bool SilenceWatch::look(const std::optional<std::string>& text, double now, double silence) {
  const bool changed = !begun_ || text != last_;
  if (changed) {
    silent_ = 0;
    last_ = text;
  } else {
    silent_ += std::min(now - looked_, silence / kGapsInSilence);
  }
  begun_ = true;
  looked_ = now;
  return changed;
}

void HeartbeatWatch::look(const std::optional<std::string>& heartbeat, double now, double silence) {
  std::optional<std::string> newest = heartbeat;
  const std::int64_t incarnation =
      heartbeat ? std::strtoll(heartbeat->c_str(), nullptr, 10) : incarnation_;
  if (incarnation < incarnation_) newest = last_;
  if (!watch_.look(newest, now, silence) || !newest) return;
  last_ = newest;
  incarnation_ = incarnation;
  ++beats_;
  left_ = newest->find(kLeft) != std::string::npos;
}

}  // namespace trireme

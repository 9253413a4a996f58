#include "trireme/train/deadline.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <ctime>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/plan/checkpoint_interval.h"

namespace trireme {
namespace {

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// Runs a command and returns the first line that it prints.
std::string first_line_printed_by(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), &pclose);
  if (!pipe) return "";
  char line[256] = "";
  if (!std::fgets(line, sizeof line, pipe.get())) return "";
  std::string text = line;
  text.erase(std::find(text.begin(), text.end(), '\n'), text.end());
  return text;
}

}  // namespace

std::optional<double> parse_end_time(const std::string& text) {
  std::tm time{};
  int used = 0;
  if (std::sscanf(text.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d%n", &time.tm_year, &time.tm_mon,
                  &time.tm_mday, &time.tm_hour, &time.tm_min, &time.tm_sec, &used) != 6 ||
      static_cast<std::size_t>(used) != text.size()) {
    return std::nullopt;
  }
  time.tm_year -= 1900;
  time.tm_mon -= 1;
  time.tm_isdst = -1;
  const std::time_t seconds = std::mktime(&time);
  if (seconds == -1) return std::nullopt;
  return static_cast<double>(seconds);
}

std::optional<double> job_end_time() {
  const std::string job = environment("SLURM_JOB_ID");
  if (!is_number(job)) return std::nullopt;
  const std::string end = environment("SLURM_JOB_END_TIME");
  if (is_number(end)) {
    double seconds = 0.0;
    std::from_chars(end.data(), end.data() + end.size(), seconds);
    return seconds;
  }
  return job_end_time_by_squeue();
}

std::optional<double> job_end_time_by_squeue() {
  std::string job = environment("SLURM_JOB_ID");
  if (!is_number(job)) return std::nullopt;
  // The number of one task of an array is that of the whole array, too.
  const std::string array = environment("SLURM_ARRAY_JOB_ID");
  const std::string task = environment("SLURM_ARRAY_TASK_ID");
  if (is_number(array) && is_number(task)) job = fmt::format("{}_{}", array, task);
  // KILL, because the signals that stop a run are blocked here, and processes that we start inherit
  // that.
  return parse_end_time(first_line_printed_by(
      fmt::format("timeout -s KILL 10 squeue -h -j {} -o %e 2> /dev/null", job)));
}

Deadline::Deadline(std::optional<double> end, double checkpoint_seconds, double margin_seconds,
                   std::function<std::optional<double>()> ask_again)
    : end_(end),
      expected_checkpoint_(checkpoint_seconds),
      margin_(margin_seconds),
      ask_again_(std::move(ask_again)) {}

void Deadline::step_took(double seconds) {
  step_ = std::max(step_, seconds);
}

void Deadline::evaluation_took(double seconds) {
  evaluation_ = std::max(evaluation_, seconds);
}

void Deadline::checkpoint_took(double seconds) {
  checkpoint_ = std::max(checkpoint_, seconds);
}

double Deadline::checkpoint_seconds() const {
  return kSlowestCheckpoint * (checkpoint_ > 0.0 ? checkpoint_ : expected_checkpoint_);
}

bool Deadline::wants_stop(double now, const Ahead& ahead) {
  if (!end_ || !is_late(now, ahead)) return false;
  const std::optional<double> end = ask_again_ ? ask_again_() : std::nullopt;
  if (!end || *end <= *end_) return true;
  end_ = end;
  return is_late(now, ahead);
}

bool Deadline::is_late(double now, const Ahead& ahead) const {
  const double checkpoints = checkpoint_seconds() * (ahead.checkpoint ? 2 : 1);
  return now + (2 + ahead.queued_steps) * step_ + ahead.evaluations * evaluation_ + checkpoints +
             margin_ >
         *end_;
}

}  // namespace trireme

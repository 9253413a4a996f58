#include "trireme/io/lease.h"

#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/kernel_files.h"
#include "trireme/base/node_names.h"
#include "trireme/base/wall_clock.h"
#include "trireme/io/whole_file.h"

namespace trireme {
namespace {

// When this process of this host started, in the kernel's ticks since boot. 0: no such process.
std::int64_t start_of(std::int64_t pid) {
  const std::string text = kernel_text(fmt::format("/proc/{}/stat", pid));
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  // The state is field 3 and the start field 22 (proc(5)).
  for (int i = 3; i <= 22; ++i) {
    fields >> field;
    if (i == 3 && (field == "Z" || field == "X")) return 0;
  }
  return std::strtoll(field.c_str(), nullptr, 10);
}

std::string lease_path(const std::string& folder) {
  return folder + "/lease";
}

std::int64_t own_pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? static_cast<std::int64_t>(status.st_ino) : 0;
}

// Whether this process can tell by its pid whether the holder lives. Leases of earlier versions
// name the host alone.
bool on_this_host(const Lease& held, const Lease& mine) {
  if (held.host != mine.host) return false;
  return held.boot.empty() || (held.boot == mine.boot && held.pid_namespace == mine.pid_namespace);
}

}  // namespace

std::optional<Lease> read_lease(const std::string& folder) {
  const auto words = read_if_there(lease_path(folder), ExitStatus::kRunFolder, 1 << 20);
  if (!words) return {};
  try {
    const Json text = Json::parse(*words);
    Lease lease;
    lease.job = text.at("job").text();
    lease.restarts = text.at("restarts").integer();
    lease.host = text.at("host").text();
    if (const Json* boot = text.find("boot")) lease.boot = boot->text();
    if (const Json* space = text.find("pid_namespace")) lease.pid_namespace = space->integer();
    lease.pid = text.at("pid").integer();
    lease.process_start = text.at("process_start").integer();
    lease.heartbeat = text.at("heartbeat").integer();
    lease.generation = text.at("generation").integer();
    return lease;
  } catch (const JsonError&) {
    throw RunFolderError(lease_path(folder) +
                         ": not a lease; remove it if no job writes into this folder");
  }
}

// Two processes that want the folder may write at the same time, so each uses a temporary file of
// its own.
void write_lease(const std::string& folder, const Lease& lease) {
  const Json text = Json::object({{"boot", lease.boot},
                                  {"generation", lease.generation},
                                  {"heartbeat", lease.heartbeat},
                                  {"host", lease.host},
                                  {"job", lease.job},
                                  {"pid", lease.pid},
                                  {"pid_namespace", lease.pid_namespace},
                                  {"process_start", lease.process_start},
                                  {"restarts", lease.restarts}});
  const std::string path = lease_path(folder);
  write_whole_file(path, text.dump(2) + "\n", fmt::format("{}.{}.{}", path, lease.host, lease.pid));
}

Lease own_lease() {
  Lease lease;
  lease.job = environment("SLURM_JOB_ID");
  lease.restarts = std::strtoll(environment("SLURM_RESTART_COUNT").c_str(), nullptr, 10);
  lease.host = host_name();
  lease.boot = first_line_of("/proc/sys/kernel/random/boot_id");
  lease.pid_namespace = own_pid_namespace();
  lease.pid = ::getpid();
  lease.process_start = start_of(lease.pid);
  lease.heartbeat = static_cast<std::int64_t>(unix_seconds());
  return lease;
}

bool same_process(const Lease& a, const Lease& b) {
  return a.host == b.host && a.pid == b.pid && a.process_start == b.process_start;
}

double lease_silence_seconds() {
  return seconds_in_environment("TRIREME_LEASE_SILENCE", 120.0, 0.0, 86'400.0);
}

bool seems_alive(const Lease& held) {
  if (on_this_host(held, own_lease())) return start_of(held.pid) == held.process_start;
  return unix_seconds() - static_cast<double>(held.heartbeat) <= lease_silence_seconds();
}

LeaseWatch::LeaseWatch(const Lease& held, const Lease& mine) : held_(held), mine_(mine) {}

LeaseWatch::Verdict LeaseWatch::look(const std::optional<Lease>& now) const {
  if (!now) return Verdict::kGone;
  // The scheduler never runs a job twice at a time. Within one start of the job an earlier job step
  // may still run. We can see that if the step ran on this host. If it ran on another host, we rely
  // on the job, which has started us.
  const bool same_job = !now->job.empty() && now->job == mine_.job;
  const bool here = on_this_host(*now, mine_);
  if (same_job && (now->restarts < mine_.restarts || !here)) return Verdict::kGone;
  if (here) {
    return start_of(now->pid) == now->process_start ? Verdict::kAlive : Verdict::kGone;
  }
  if (*now != held_) return Verdict::kAlive;
  return silence() >= lease_silence_seconds() ? Verdict::kGone : Verdict::kUnknown;
}

}  // namespace trireme

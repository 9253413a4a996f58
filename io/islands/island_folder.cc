#include "trireme/io/island_folder.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/io/whole_file.h"

#include "io/files/posix_file.h"

namespace trireme {
namespace {

constexpr ExitStatus kStatus = ExitStatus::kRunFolder;
constexpr std::size_t kMostBytes = std::size_t{64} << 20;  // of a record
constexpr double kLook = 0.1;                              // seconds between two looks in a wait

}  // namespace

SystemIslandFolder::SystemIslandFolder(std::string run, const std::string& member,
                                       std::string writer)
    : run_(std::move(run)), writer_(std::move(writer)) {
  make_folders(path("outer"), kStatus);
  make_folders(path("islands/" + member), kStatus);
}

std::optional<std::string> SystemIslandFolder::read(const std::string& name) {
  const std::string file = path(name), folder = folder_above(file);
  if (!look_at(folder, kStatus).is_there()) return {};
  if (auto text = read_if_there(file, kStatus, kMostBytes)) return text;
  // A client of NFS remembers for up to a minute that a name was absent, unless it sees that the
  // folder has changed; it asks for that when the folder is opened.
  const PosixFile opened(folder, O_RDONLY | O_DIRECTORY);
  return read_if_there(file, kStatus, kMostBytes);
}

std::vector<std::string> SystemIslandFolder::list(const std::string& folder) {
  return names_in(path(folder), kStatus).value_or(std::vector<std::string>());
}

void SystemIslandFolder::write_private(const std::string& name, const std::string& text) {
  PosixFile file = make_file_anew(path(name));
  file.write(0, text.data(), text.size());
  file.sync();
}

void SystemIslandFolder::replace(const std::string& name, const std::string& text) {
  write_whole_file(path(name), text, path(name) + "." + writer_);
}

void SystemIslandFolder::remove(const std::string& name) {
  remove_if_there(path(name), kStatus);
}

IslandFolder::Linked SystemIslandFolder::link_new(const std::string& private_name,
                                                  const std::string& name) {
  const std::string from = path(private_name), to = path(name);
  if (patiently([&] { return ::link(from.c_str(), to.c_str()); }) == 0) {
    sync_folder(folder_above(to));
    return Linked::kNew;
  }
  const int reason = errno;
  if (reason == EEXIST) return Linked::kExists;
  if (reason == ENOENT && !look_at(from, kStatus).is_there()) return Linked::kGone;
  throw_unreadable(kStatus, to, "cannot be published by link(), which runs of several jobs need",
                   reason);
}

double SystemIslandClock::seconds() {
  return static_cast<double>(now_ns()) * 1e-9;
}

void SystemIslandClock::wait(double seconds) {
  const Stopwatch waited;
  while (true) {
    if (look_) look_();
    const double rest = seconds - waited.seconds();
    if (rest <= 0) return;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(rest, kLook)));
  }
}

}  // namespace trireme

// Writes checkpoints 1 and 2 and is killed while it writes the second; started again, says what is
// left. checkpoint_kill_program FOLDER write WHEN | check
//   WHEN: "begin" (as soon as the unfinished file exists), "middle" (once it has its size),
//         "rename" (complete, before it gets its name)
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/log.h"
#include "trireme/comm/runtime.h"
#include "trireme/io/checkpoint.h"

#include "support/checkpoint_model.h"

namespace {

using namespace trireme;

const std::vector<testing::NamedTensor> kModel = {{"parameters/a.weight", {1500, 2000}},
                                                  {"optimizer/a.weight/exp_avg", {1500, 2000}}};

void write(Runtime& runtime, const std::string& folder, std::int64_t step,
           const CheckpointOptions& options) {
  CheckpointInfo info;
  info.step = step;
  const auto owned = testing::deal(kModel, testing::Split::kRows, runtime.rank(), runtime.size(),
                                   static_cast<std::uint64_t>(step), true);
  write_checkpoint(runtime.world(), runtime.recorder(), folder, info, owned, options);
}

// The last rank dies when the unfinished file has reached the size.
void kill_at_size(const std::string& path, std::uintmax_t bytes) {
  std::thread([path, bytes] {
    for (;; ::usleep(50)) {
      std::error_code error;
      const auto size = std::filesystem::file_size(path, error);
      if (!error && size >= bytes) ::kill(::getpid(), SIGKILL);
    }
  }).detach();
}

ExitStatus write_and_die(Runtime& runtime, const std::string& folder, const std::string& when) {
  CheckpointOptions options;
  options.keep = 1;
  write(runtime, folder, 1, options);
  const std::string partial = checkpoint_path(folder, 2) + ".0.partial";
  const bool last = runtime.rank() == runtime.size() - 1;
  if (when == "begin" && last) kill_at_size(partial, 0);
  if (when == "middle" && last) kill_at_size(partial, 24'000'000);
  int calls = 0;
  if (when == "rename") {
    options.check_still_ours = [&calls] {
      if (++calls == 2) ::kill(::getpid(), SIGKILL);
    };
  }
  write(runtime, folder, 2, options);
  return ExitStatus::kDone;
}

ExitStatus check(Runtime& runtime, const std::string& folder) {
  const LatestCheckpoint latest = open_latest_checkpoint(runtime.world(), folder);
  const std::int64_t step = latest.checkpoint ? latest.checkpoint->info().step : 0;
  std::int64_t wrong = 0;
  if (latest.checkpoint) {
    const auto wanted = testing::deal(kModel, testing::Split::kFlat, runtime.rank(), runtime.size(),
                                      static_cast<std::uint64_t>(step), false);
    latest.checkpoint->read(runtime.world(), wanted);
    wrong = runtime.world().all_reduce_host(
        testing::wrong_bytes(wanted, static_cast<std::uint64_t>(step)), ReduceOp::kSum);
  }
  CheckpointOptions options;
  options.keep = 1;
  write(runtime, folder, 3, options);
  std::int64_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files += entry.exists();
  if (runtime.rank() == 0) {
    print_line(fmt::format("step {}, {} wrong bytes, {} refused; {} file after the next", step,
                           wrong, latest.refused.size(), files));
  }
  return ExitStatus::kDone;
}

}  // namespace

int main(int argc, char** argv) {
  Runtime runtime;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  runtime.run([&] {
    if (arguments.at(1) == "check") return check(runtime, arguments.at(0));
    return write_and_die(runtime, arguments.at(0), arguments.at(2));
  });
}

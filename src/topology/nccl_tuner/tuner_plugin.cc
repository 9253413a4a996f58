// libtrireme_tuner.so: has NCCL choose as a table says that the program has written
// (trireme/topology/nccl_table.h). It must never fail a collective, so whatever is wrong means that
// NCCL's own choice stands. And it must choose the same on every rank: the choice depends on the
// table, which is the same on all ranks, and on what NCCL offers, which is too.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/topology/nccl_table.h"

#include "tuner_interface.h"

namespace trireme::nccl_tuner {
namespace {

constexpr int kSuccess = 0;
constexpr const char* kVariable = "TRIREME_NCCL_TABLE";

class File {
 public:
  explicit File(const char* path) : descriptor_(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

// Reads one byte more than a table may have, so that a larger file is seen.
std::optional<std::string> read_file(const char* path, std::string& problem) {
  const File file(path);
  struct stat status {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0) {
    problem = std::strerror(errno);
    return std::nullopt;
  }
  if (!S_ISREG(status.st_mode)) {
    problem = "no regular file";
    return std::nullopt;
  }
  std::string text(kMostNcclTableBytes + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t got =
        pread(file.get(), text.data() + size, text.size() - size, static_cast<off_t>(size));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      problem = std::strerror(errno);
      return std::nullopt;
    }
    if (got == 0) break;
    size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  return text;
}

// The table for a communicator, if there is one.
std::optional<NcclTable> read_table(std::size_t ranks, std::size_t nodes, std::string& problem) {
  const char* path = std::getenv(kVariable);
  if (path == nullptr || *path == '\0') {
    problem = std::string(kVariable) + " is not set";
    return std::nullopt;
  }
  const std::optional<std::string> text = read_file(path, problem);
  const auto tables = text ? read_nccl_tables(*text, problem) : std::nullopt;
  if (!tables) {
    problem = std::string(path) + ": " + problem;
    return std::nullopt;
  }
  const NcclTable* table = find_nccl_table(*tables, ranks, nodes);
  if (table == nullptr) return std::nullopt;
  return *table;
}

int init(void** context, std::uint64_t /*communicator*/, std::size_t ranks, std::size_t nodes,
         Log* log, void* /*nvlink_domains*/, void* /*constants*/) noexcept {
  if (context == nullptr) return kSuccess;
  *context = nullptr;
  try {
    std::string problem;
    std::optional<NcclTable> table = read_table(ranks, nodes, problem);
    if (log != nullptr && !problem.empty()) {
      log(kLogWarning, kLogTuning, "trireme_tuner", 0, "Trireme tuner: %s; NCCL chooses itself",
          problem.c_str());
    } else if (log != nullptr) {
      log(kLogInformation, kLogTuning, "trireme_tuner", 0,
          "Trireme tuner: %s for %zu ranks on %zu nodes", table ? "a table" : "no table", ranks,
          nodes);
    }
    if (table) *context = std::make_unique<NcclTable>(std::move(*table)).release();
  } catch (...) {  // out of memory
  }
  return kSuccess;
}

int choose(void* context, int collective, std::size_t bytes, int /*operations*/, float** times,
           int algorithms, int protocols, int /*registered*/, int* channels) noexcept {
  if (context == nullptr || times == nullptr || algorithms <= 0 || protocols <= 0 ||
      collective < 0 || collective >= kNcclCollectives) {
    return kSuccess;
  }
  try {
    auto* const cells = reinterpret_cast<float*>(times);
    const auto rows = static_cast<std::size_t>(algorithms);
    const auto columns = static_cast<std::size_t>(protocols);
    const auto cell = choose_nccl_cell(
        *static_cast<const NcclTable*>(context), static_cast<NcclCollective>(collective), bytes,
        {.times = {cells, rows * columns}, .algorithms = algorithms, .protocols = protocols});
    if (!cell) return kSuccess;
    cells[static_cast<std::size_t>(cell->algorithm) * columns +
          static_cast<std::size_t>(cell->protocol)] = 0.0f;
    if (cell->channels > 0 && channels != nullptr) *channels = cell->channels;
  } catch (...) {
  }
  return kSuccess;
}

int finalize(void* context) noexcept {
  delete static_cast<NcclTable*>(context);
  return kSuccess;
}

}  // namespace
}  // namespace trireme::nccl_tuner

extern "C" __attribute__((visibility("default")))
const trireme::nccl_tuner::Plugin ncclTunerPlugin_v5;
const trireme::nccl_tuner::Plugin ncclTunerPlugin_v5 = {"Trireme", trireme::nccl_tuner::init,
                                                        trireme::nccl_tuner::choose,
                                                        trireme::nccl_tuner::finalize};

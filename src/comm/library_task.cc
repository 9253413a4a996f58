#include "library_task.h"

#include <map>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mpi_util.h"

namespace trireme {

// A control variable that holds the number of a collective's algorithm.
struct LibraryVariable {
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  std::map<std::string, int, std::less<>> values{};
};

namespace {

std::string variable_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM";
    case Collective::kReduceScatter:
      return "MPIR_CVAR_IREDUCE_SCATTER_BLOCK_INTRA_ALGORITHM";
    case Collective::kAllGather:
      return "MPIR_CVAR_IALLGATHER_INTRA_ALGORITHM";
    case Collective::kBroadcast:
      return "MPIR_CVAR_IBCAST_INTRA_ALGORITHM";
    case Collective::kAllToAll:
      return "MPIR_CVAR_IALLTOALL_INTRA_ALGORITHM";
    case Collective::kExchange:
      break;
  }
  return {};
}

// MPICH's words for an algorithm, whichever of them the collective has.
std::vector<std::string_view> words_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kLibraryRing:
      return {"tsp_ring", "sched_ring", "sched_scatter_ring_allgather"};
    case Algorithm::kLibraryTree:
      return {"tsp_tree", "tsp_brucks", "sched_brucks", "sched_binomial"};
    case Algorithm::kLibraryDoubling:
      return {"tsp_recexch_single_buffer", "tsp_recexch_doubling", "sched_recursive_doubling",
              "sched_scatter_recursive_doubling_allgather"};
    case Algorithm::kLibraryHalving:
      return {"sched_reduce_scatter_allgather", "sched_recursive_halving", "tsp_recexch_halving",
              "tsp_scatterv_recexch_allgatherv"};
    default:
      return {};
  }
}

// MPICH's variables are plain numbers; their descriptions list the words from 0 on, "auto" first:
// "...auto - internal selectionsched_naive - force the naive algorithmtsp_ring - ...". Returns
// nothing for text of another form.
std::map<std::string, int, std::less<>> words_in(const std::string& description) {
  static const std::regex pattern("((?:sched|tsp)_[a-z_]+)\\s+- ");
  std::map<std::string, int, std::less<>> words;
  int number = 0;
  for (std::sregex_iterator match(description.begin(), description.end(), pattern), end;
       match != end; ++match) {
    words.emplace((*match)[1], ++number);
  }
  int entries = 0;
  for (std::size_t at = description.find(" - "); at != std::string::npos;
       at = description.find(" - ", at + 1)) {
    ++entries;
  }
  if (entries != number + 1) words.clear();
  return words;
}

// Returns nothing where MPI has no such variable.
std::optional<LibraryVariable> open_variable(const std::string& name) {
  int provided = 0, index = 0;
  if (MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS) return {};
  if (name.empty() || MPI_T_cvar_get_index(name.c_str(), &index) != MPI_SUCCESS) return {};
  int verbosity = 0, bind = 0, scope = 0, no_name = 0;
  std::string description(1 << 14, ' ');
  int length = static_cast<int>(description.size());
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_T_enum values = MPI_T_ENUM_NULL;
  if (MPI_T_cvar_get_info(index, nullptr, &no_name, &verbosity, &type, &values, description.data(),
                          &length, &bind, &scope) != MPI_SUCCESS ||
      type != MPI_INT || bind != MPI_T_BIND_NO_OBJECT) {
    return {};
  }
  LibraryVariable result{.values = words_in(description.c_str())};
  int elements = 0;
  if (result.values.empty() ||
      MPI_T_cvar_handle_alloc(index, nullptr, &result.handle, &elements) != MPI_SUCCESS ||
      elements != 1) {
    return {};
  }
  return result;
}

const LibraryVariable* library_variable(Collective collective) {
  // Opened once; the caller holds the lock.
  static std::map<Collective, std::optional<LibraryVariable>> variables;
  const auto [entry, is_new] = variables.try_emplace(collective);
  if (is_new) entry->second = open_variable(variable_of(collective));
  return entry->second ? &*entry->second : nullptr;
}

std::mutex& choice_mutex() {
  static std::mutex mutex;
  return mutex;
}

class LibraryTask final : public Task {
 public:
  LibraryTask(Collective collective, Algorithm algorithm, std::function<int(MPI_Request*)> start,
              Tensors tensors)
      : collective_(collective),
        algorithm_(algorithm),
        start_(std::move(start)),
        tensors_(std::move(tensors)) {}
  // MPI's collectives cannot be cancelled.
  ~LibraryTask() override {
    if (request_ == MPI_REQUEST_NULL) return;
    keep_until_done({request_}, std::make_shared<Tensors>(std::move(tensors_)));
  }
  LibraryTask(const LibraryTask&) = delete;
  LibraryTask& operator=(const LibraryTask&) = delete;

  Step advance() override {
    if (start_) {
      const LibraryChoice choice(collective_, algorithm_);
      check_mpi(start_(&request_), "start a collective operation");
      start_ = nullptr;
    }
    int done = 0;
    check_mpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "finish a collective operation");
    return done != 0 ? Step::kDone : Step::kIdle;
  }

 private:
  Collective collective_;
  Algorithm algorithm_;
  std::function<int(MPI_Request*)> start_;
  Tensors tensors_;
  MPI_Request request_ = MPI_REQUEST_NULL;
};

}  // namespace

LibraryChoice::LibraryChoice(Collective collective, Algorithm algorithm) : lock_(choice_mutex()) {
  const std::vector<std::string_view> words = words_of(algorithm);
  if (words.empty()) return;
  const LibraryVariable* const variable = library_variable(collective);
  if (variable == nullptr) return;
  for (const std::string_view word : words) {
    const auto value = variable->values.find(word);
    if (value == variable->values.end()) continue;
    if (MPI_T_cvar_read(variable->handle, &before_) == MPI_SUCCESS &&
        MPI_T_cvar_write(variable->handle, &value->second) == MPI_SUCCESS) {
      variable_ = variable;
    }
    return;
  }
}

LibraryChoice::~LibraryChoice() {
  if (variable_ != nullptr) MPI_T_cvar_write(variable_->handle, &before_);
}

std::unique_ptr<Task> make_library_task(Collective collective, Algorithm algorithm,
                                        std::function<int(MPI_Request*)> start, Tensors tensors) {
  return std::make_unique<LibraryTask>(collective, algorithm, std::move(start), std::move(tensors));
}

}  // namespace trireme

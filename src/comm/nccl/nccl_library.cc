// NCCL's own functions.
#include "comm/nccl/nccl_library.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <nccl.h>

#include "trireme/base/dynamic_library.h"
#include "trireme/base/error.h"

namespace trireme::nccl {
namespace {

static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
static_assert(NCCL_VERSION_CODE >= 21900, "nccl.h is older than 2.19");  // newer ones run
static_assert(static_cast<int>(Result::kSystemError) == ncclSystemError &&
              static_cast<int>(Result::kRemoteError) == ncclRemoteError &&
              static_cast<int>(Result::kInProgress) == ncclInProgress);

ncclComm_t comm_of(CommHandle handle) {
  return static_cast<ncclComm_t>(handle);
}
cudaStream_t stream_of(cuda::StreamHandle handle) {
  return static_cast<cudaStream_t>(handle);
}
Result result_of(ncclResult_t result) {
  return static_cast<Result>(result);
}

ncclDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return ncclFloat32;
    case DType::kF64:
      return ncclFloat64;
    case DType::kBF16:
      return ncclBfloat16;
    case DType::kF16:
      return ncclFloat16;
    case DType::kI32:
      return ncclInt32;
    case DType::kI64:
      return ncclInt64;
    case DType::kU8:
      return ncclUint8;
    case DType::kU16:
    case DType::kE4M3:
      break;
  }
  throw InternalError(fmt::format("NCCL was asked to reduce {}", name_of(dtype)));
}

ncclRedOp_t op_of(ReduceOp op) {
  return op == ReduceOp::kMax ? ncclMax : op == ReduceOp::kMin ? ncclMin : ncclSum;
}

constexpr int kSymmetricWindow = 1;  // NCCL_WIN_COLL_SYMMETRIC
using WindowRegister = ncclResult_t(ncclComm_t, void*, std::size_t, void** window, int flags);
using WindowDeregister = ncclResult_t(ncclComm_t, void* window);

// NCCL's functions, found by their names in the library.
struct Functions {
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) error_string;
  decltype(&ncclGetLastError) last_error;
  decltype(&ncclGetUniqueId) get_unique_id;
  decltype(&ncclCommInitRankConfig) init_rank;
  decltype(&ncclCommGetAsyncError) async_error;
  decltype(&ncclCommFinalize) finalize;
  decltype(&ncclCommDestroy) destroy;
  decltype(&ncclCommAbort) abort;
  decltype(&ncclGroupStart) group_start;
  decltype(&ncclGroupEnd) group_end;
  decltype(&ncclAllReduce) all_reduce;
  decltype(&ncclReduceScatter) reduce_scatter;
  decltype(&ncclAllGather) all_gather;
  decltype(&ncclBroadcast) broadcast;
  decltype(&ncclSend) send;
  decltype(&ncclRecv) receive;
  decltype(&ncclCommRegister) register_buffer;
  decltype(&ncclCommDeregister) deregister_buffer;
  decltype(&ncclMemAlloc) allocate;
  decltype(&ncclMemFree) free;
  // Declared as in NCCL 2.27 and later, because this program may have been built with an older
  // version. They are null if the library is older.
  WindowRegister* register_window;
  WindowDeregister* deregister_window;
};

Functions find_functions(const DynamicLibrary& library) {
  Functions found = {};
  const auto load = [&](auto& function, const char* symbol) {
    using Pointer = std::remove_reference_t<decltype(function)>;
    function = library.required<std::remove_pointer_t<Pointer>>(symbol);
  };
  load(found.get_version, "ncclGetVersion");
  load(found.error_string, "ncclGetErrorString");
  load(found.last_error, "ncclGetLastError");
  load(found.get_unique_id, "ncclGetUniqueId");
  load(found.init_rank, "ncclCommInitRankConfig");
  load(found.async_error, "ncclCommGetAsyncError");
  load(found.finalize, "ncclCommFinalize");
  load(found.destroy, "ncclCommDestroy");
  load(found.abort, "ncclCommAbort");
  load(found.group_start, "ncclGroupStart");
  load(found.group_end, "ncclGroupEnd");
  load(found.all_reduce, "ncclAllReduce");
  load(found.reduce_scatter, "ncclReduceScatter");
  load(found.all_gather, "ncclAllGather");
  load(found.broadcast, "ncclBroadcast");
  load(found.send, "ncclSend");
  load(found.receive, "ncclRecv");
  load(found.register_buffer, "ncclCommRegister");
  load(found.deregister_buffer, "ncclCommDeregister");
  load(found.allocate, "ncclMemAlloc");
  load(found.free, "ncclMemFree");
  found.register_window = library.function<WindowRegister>("ncclCommWindowRegister");
  found.deregister_window = library.function<WindowDeregister>("ncclCommWindowDeregister");
  return found;
}

// NCCL refuses a lower limit without an upper one.
constexpr int kFewestChannels = 1, kMostChannels = 64;

// NCCL_CTA_POLICY_EFFICIENCY and _ZERO, which an older header lacks.
constexpr int kEfficiency = 1, kZero = 2;

// Fields that the header lacks are left out; why_not() has refused them. A template, since only
// there the compiler accepts names of such fields.
template <class Config>
void set_fields(Config& config, const std::string& name, const NcclTuning& tuning) {
  if constexpr (requires { config.commName; }) config.commName = name.c_str();
  if constexpr (requires { config.CTAPolicy; }) {
    if (!tuning.policy.empty()) config.CTAPolicy = tuning.policy == "zero" ? kZero : kEfficiency;
  }
  if constexpr (requires { config.nvlsCTAs; }) {
    if (tuning.nvls_channels) config.nvlsCTAs = *tuning.nvls_channels;
  }
  if (tuning.min_channels || tuning.max_channels) {
    config.minCTAs = tuning.min_channels.value_or(kFewestChannels);
    config.maxCTAs = tuning.max_channels.value_or(kMostChannels);
  }
  if (!tuning.network.empty()) config.netName = tuning.network.c_str();  // NCCL copies it
  if constexpr (requires { config.trafficClass; }) {
    if (tuning.traffic_class) config.trafficClass = *tuning.traffic_class;
  }
  if constexpr (requires { config.collnetEnable; }) {
    if (tuning.collnet) config.collnetEnable = *tuning.collnet ? 1 : 0;
  }
  if constexpr (requires { config.nChannelsPerNetPeer; }) {
    if (tuning.channels_per_peer) config.nChannelsPerNetPeer = *tuning.channels_per_peer;
  }
}

class RealLibrary final : public Library {
 public:
  RealLibrary(const Functions& functions, std::string path)
      : nccl_(functions), path_(std::move(path)) {}

  int version() override {
    int version = 0;
    return nccl_.get_version(&version) == ncclSuccess ? version : 0;
  }
  std::string path() override { return path_; }

  // NCCL's last error is often empty, and may end with a line feed.
  std::string words(Result result, CommHandle comm) override {
    std::string text = nccl_.error_string(static_cast<ncclResult_t>(result));
    const char* more = nccl_.last_error(comm_of(comm));
    std::string_view last = more == nullptr ? "" : more;
    while (last.ends_with('\n') || last.ends_with(' ')) last.remove_suffix(1);
    if (!last.empty()) text += fmt::format(" ({})", last);
    for (char& c : text) c = c == '\n' ? ' ' : c;
    return text;
  }

  Result make_unique_id(UniqueId& id) override {
    ncclUniqueId made;
    const ncclResult_t result = nccl_.get_unique_id(&made);
    std::memcpy(id.data(), &made, sizeof made);
    return result_of(result);
  }

  // The header and the library may differ in version, and each ignores fields that it lacks.
  std::string why_not(const NcclTuning& tuning) override {
    return nccl::why_not(tuning, std::min(NCCL_VERSION_CODE, version()));
  }

  // Non-blocking. Shares nothing with another communicator, so that communicators overlap.
  Result init_rank(CommHandle& comm, const std::string& name, int ranks, const UniqueId& id,
                   int rank, const NcclTuning& tuning) override {
    ncclUniqueId given;
    std::memcpy(&given, id.data(), sizeof given);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 0;
    set_fields(config, name, tuning);
    ncclComm_t made = nullptr;
    const ncclResult_t result = nccl_.init_rank(&made, ranks, given, rank, &config);
    comm = made;
    return result_of(result);
  }

  Result async_error(CommHandle comm, Result& state) override {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t result = nccl_.async_error(comm_of(comm), &found);
    state = result_of(found);
    return result_of(result);
  }
  Result finalize(CommHandle comm) override { return result_of(nccl_.finalize(comm_of(comm))); }
  Result destroy(CommHandle comm) override { return result_of(nccl_.destroy(comm_of(comm))); }
  Result abort(CommHandle comm) override { return result_of(nccl_.abort(comm_of(comm))); }

  Result group_start() override { return result_of(nccl_.group_start()); }
  Result group_end() override { return result_of(nccl_.group_end()); }

  Result all_reduce(void* data, std::size_t count, DType dtype, ReduceOp op, CommHandle comm,
                    cuda::StreamHandle stream) override {
    return result_of(nccl_.all_reduce(data, data, count, type_of(dtype), op_of(op), comm_of(comm),
                                      stream_of(stream)));
  }
  Result reduce_scatter(const void* input, void* output, std::size_t part_count, DType dtype,
                        ReduceOp op, CommHandle comm, cuda::StreamHandle stream) override {
    return result_of(nccl_.reduce_scatter(input, output, part_count, type_of(dtype), op_of(op),
                                          comm_of(comm), stream_of(stream)));
  }
  Result all_gather(const void* input, void* output, std::size_t part_bytes, CommHandle comm,
                    cuda::StreamHandle stream) override {
    return result_of(
        nccl_.all_gather(input, output, part_bytes, ncclUint8, comm_of(comm), stream_of(stream)));
  }
  Result broadcast(void* data, std::size_t bytes, int root, CommHandle comm,
                   cuda::StreamHandle stream) override {
    return result_of(
        nccl_.broadcast(data, data, bytes, ncclUint8, root, comm_of(comm), stream_of(stream)));
  }
  Result send(const void* data, std::size_t bytes, int peer, CommHandle comm,
              cuda::StreamHandle stream) override {
    return result_of(nccl_.send(data, bytes, ncclUint8, peer, comm_of(comm), stream_of(stream)));
  }
  Result receive(void* data, std::size_t bytes, int peer, CommHandle comm,
                 cuda::StreamHandle stream) override {
    return result_of(nccl_.receive(data, bytes, ncclUint8, peer, comm_of(comm), stream_of(stream)));
  }

  Result allocate(void*& memory, std::size_t bytes) override {
    return result_of(nccl_.allocate(&memory, bytes));
  }
  Result free(void* memory) override { return result_of(nccl_.free(memory)); }

  bool has_windows() override {
    return nccl_.register_window != nullptr && nccl_.deregister_window != nullptr;
  }
  Result register_memory(CommHandle comm, Registration kind, void* data, std::size_t bytes,
                         void*& registration) override {
    return result_of(
        kind == Registration::kWindow
            ? nccl_.register_window(comm_of(comm), data, bytes, &registration, kSymmetricWindow)
            : nccl_.register_buffer(comm_of(comm), data, bytes, &registration));
  }
  Result deregister_memory(CommHandle comm, Registration kind, void* registration) override {
    return result_of(kind == Registration::kWindow
                         ? nccl_.deregister_window(comm_of(comm), registration)
                         : nccl_.deregister_buffer(comm_of(comm), registration));
  }

 private:
  const Functions nccl_;
  const std::string path_;
};

}  // namespace

std::shared_ptr<Library> load_library() {
  // With this setting, operations of different communicators start on the device in the order in
  // which the host has entered them, even within a graph, whose branches have no order of their
  // own. NCCL reads the setting when it starts.
  setenv(kLaunchOrder, "1", /*overwrite=*/0);
  const auto names = cuda_library_names("nccl", NCCL_MAJOR);
  const DynamicLibrary library(names);
  if (!library.found()) {
    throw NcclError(
        fmt::format("NCCL, which carries tensors between GPUs, is not here: {} (tried {}); "
                    "--comm.backend mpi does without",
                    library.why_not(), fmt::join(names, ", ")));
  }
  try {
    // Checks the version first, because an old NCCL lacks functions too.
    int version = 0;
    library.required<ncclResult_t(int*)>("ncclGetVersion")(&version);
    check_version(version, library.path());
    return std::make_shared<RealLibrary>(find_functions(library), library.path());
  } catch (const CudaError& error) {
    throw NcclError(error.what());
  }
}

}  // namespace trireme::nccl

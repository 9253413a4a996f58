#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/dynamic_library.h"
#include "trireme/base/error.h"

#include "tensor/cuda/cupti.h"

namespace trireme::cuda {
namespace {

constexpr int kOfAMajorVersion = 10000;                     // 130001 is 13.0
constexpr std::size_t kBufferBytes = std::size_t{4} << 20;  // some 20,000 kernels
constexpr std::size_t kBufferAlignment = 8;                 // CUPTI's
// Numbers of operations come with the records of calls, which nothing else here reads.
constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY,
                                         CUPTI_ACTIVITY_KIND_MEMSET,
                                         CUPTI_ACTIVITY_KIND_RUNTIME,
                                         CUPTI_ACTIVITY_KIND_DRIVER,
                                         CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION};
constexpr auto kNumbers = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;

void request_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* most_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(kBufferAlignment, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;  // CUPTI then drops records, and counts them
  *most_records = 0;                               // as many as fit
}

// A tool has to subscribe to be known to others, though the calls themselves tell us nothing.
void ignore_call(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

std::int64_t time_of(std::uint64_t nanoseconds) {
  return static_cast<std::int64_t>(nanoseconds);
}

DeviceWork work_of(const CUpti_ActivityKernel10& record) {
  return {.name = record.name == nullptr ? "" : record.name,
          .kernel = true,
          .begin_ns = time_of(record.start),
          .end_ns = time_of(record.end)};
}

DeviceWork work_of(const CUpti_ActivityMemcpy6& record) {
  DeviceWork work{.name = "copy", .begin_ns = time_of(record.start), .end_ns = time_of(record.end)};
  if (record.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD) work.name = "copy to device";
  if (record.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH) work.name = "copy to host";
  if (record.copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOD) {
    work.name = "copy on device";
    work.bytes = 2.0 * static_cast<double>(record.bytes);  // the bus bounds the others
  }
  return work;
}

DeviceWork work_of(const CUpti_ActivityMemset4& record) {
  return {.name = "fill",
          .begin_ns = time_of(record.start),
          .end_ns = time_of(record.end),
          .bytes = static_cast<double>(record.bytes)};
}

class CuptiTrace final : public KernelTrace {
 public:
  explicit CuptiTrace(const Cupti& library) : library_(library) {}

  // What start() has begun ends, also where it went no further.
  ~CuptiTrace() override {
    for (std::size_t i = 0; i < enabled_; ++i) library_.disable(kKinds[i]);
    if (enabled_ > 0) library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (subscriber_ != nullptr) library_.unsubscribe(subscriber_);
    const std::lock_guard lock(receiver().mutex);
    if (receiver().trace == this) receiver().trace = nullptr;
  }
  CuptiTrace(const CuptiTrace&) = delete;
  CuptiTrace& operator=(const CuptiTrace&) = delete;

  void start() {
    {
      const std::lock_guard lock(receiver().mutex);
      if (receiver().trace != nullptr) throw CudaError("CUPTI: kernels are traced already");
      receiver().trace = this;
    }
    check("cuptiSubscribe", library_.subscribe(&subscriber_, ignore_call, nullptr));
    check("cuptiActivityRegisterCallbacks",
          library_.register_callbacks(request_buffer, complete_buffer));
    for (const CUpti_ActivityKind kind : kKinds) {
      check("cuptiActivityEnable", library_.enable(kind));
      ++enabled_;
    }
  }

  KernelRecords take() override {
    check("cuptiActivityFlushAll", library_.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    const std::lock_guard lock(receiver().mutex);
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const auto found = operations_.find(calls_[i]);
      if (found != operations_.end()) records_.work[i].operation = found->second;
    }
    operations_.clear();
    calls_.clear();
    return std::exchange(records_, {});
  }

  void begin_operation(std::uint64_t number) override {
    check("cuptiActivityPushExternalCorrelationId", library_.push_number(kNumbers, number));
  }
  void end_operation() override {
    check("cuptiActivityPopExternalCorrelationId", library_.pop_number(kNumbers, nullptr));
  }

 private:
  // CUPTI's callbacks, on any thread, have no argument of ours: they find the trace here.
  struct Receiver {
    std::mutex mutex;
    CuptiTrace* trace = nullptr;
  };
  static Receiver& receiver() {
    static Receiver only;
    return only;
  }

  static void complete_buffer(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                              std::size_t, std::size_t valid_bytes) {
    {
      const std::lock_guard lock(receiver().mutex);
      if (receiver().trace != nullptr) receiver().trace->read(context, stream, buffer, valid_bytes);
    }
    std::free(buffer);
  }

  void read(CUcontext context, std::uint32_t stream, std::uint8_t* buffer, std::size_t bytes) {
    CUpti_Activity* record = nullptr;
    while (library_.next_record(buffer, bytes, &record) == CUPTI_SUCCESS) add(*record);
    std::size_t dropped = 0;
    if (library_.dropped_records(context, stream, &dropped) == CUPTI_SUCCESS) {
      records_.lost += dropped;
    }
  }

  void add(const CUpti_Activity& record) {
    if (record.kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      add_work(reinterpret_cast<const CUpti_ActivityKernel10&>(record));
    } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      add_work(reinterpret_cast<const CUpti_ActivityMemcpy6&>(record));
    } else if (record.kind == CUPTI_ACTIVITY_KIND_MEMSET) {
      add_work(reinterpret_cast<const CUpti_ActivityMemset4&>(record));
    } else if (record.kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
      const auto& call = reinterpret_cast<const CUpti_ActivityExternalCorrelation&>(record);
      if (call.externalKind == kNumbers) operations_[call.correlationId] = call.externalId;
    }
  }

  // A record without an end is of work that still runs.
  template <class Record>
  void add_work(const Record& record) {
    DeviceWork work = work_of(record);
    if (work.end_ns < work.begin_ns || work.end_ns == 0) {
      ++records_.lost;
    } else {
      records_.work.push_back(std::move(work));
      calls_.push_back(record.correlationId);
    }
  }

  void check(const char* function, CUptiResult result) const {
    if (result == CUPTI_SUCCESS) return;
    if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
      throw CudaError("CUPTI is held by another tool, which traces this program");
    }
    const char* name = nullptr;
    library_.result_string(result, &name);
    throw CudaError(fmt::format(
        "{}: {}", function,
        name == nullptr ? fmt::format("error {}", static_cast<int>(result)) : std::string(name)));
  }

  const Cupti library_;
  CUpti_SubscriberHandle subscriber_ = nullptr;
  std::size_t enabled_ = 0;  // of kKinds
  // Guarded by the receiver's mutex.
  KernelRecords records_;
  std::vector<std::uint32_t> calls_;                   // that queued each record's work
  std::map<std::uint32_t, std::uint64_t> operations_;  // that made a call
};

}  // namespace

Cupti load_cupti(const std::vector<std::string>& names) {
  const DynamicLibrary library(names);
  if (!library.found()) {
    throw CudaError(fmt::format("CUPTI, which traces kernels, is not here: {} (tried {})",
                                library.why_not(), fmt::join(names, ", ")));
  }
  Cupti found = {};
  const auto load = [&](auto& function, const char* symbol) {
    using Pointer = std::remove_reference_t<decltype(function)>;
    function = library.required<std::remove_pointer_t<Pointer>>(symbol);
  };
  load(found.get_version, "cuptiGetVersion");
  load(found.result_string, "cuptiGetResultString");
  load(found.subscribe, "cuptiSubscribe");
  load(found.unsubscribe, "cuptiUnsubscribe");
  load(found.register_callbacks, "cuptiActivityRegisterCallbacks");
  load(found.enable, "cuptiActivityEnable");
  load(found.disable, "cuptiActivityDisable");
  load(found.flush_all, "cuptiActivityFlushAll");
  load(found.next_record, "cuptiActivityGetNextRecord");
  load(found.dropped_records, "cuptiActivityGetNumDroppedRecords");
  load(found.push_number, "cuptiActivityPushExternalCorrelationId");
  load(found.pop_number, "cuptiActivityPopExternalCorrelationId");
  return found;
}

std::unique_ptr<KernelTrace> make_cupti_trace(const Cupti& library) {
  std::uint32_t version = 0;
  library.get_version(&version);
  constexpr std::uint32_t kMajor = CUPTI_API_VERSION / kOfAMajorVersion;
  if (version / kOfAMajorVersion != kMajor) {
    throw CudaError(fmt::format(
        "CUPTI here has version {}, but this program knows the records of {}.*", version, kMajor));
  }
  auto trace = std::make_unique<CuptiTrace>(library);
  trace->start();
  return trace;
}

std::unique_ptr<KernelTrace> open_kernel_trace() {
  return make_cupti_trace(
      load_cupti(cuda_library_names("cupti", CUPTI_API_VERSION / kOfAMajorVersion)));
}

}  // namespace trireme::cuda

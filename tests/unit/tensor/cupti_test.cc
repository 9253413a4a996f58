// Kernels traced by a scripted CUPTI: what is opened, asked for, given back and understood.
#include "tensor/cuda/cupti.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/dynamic_library.h"
#include "trireme/base/error.h"

#include "support/message_of.h"

namespace trireme {
namespace {

using cuda::Cupti;
using cuda::DeviceWork;
using cuda::KernelRecords;

// A record of any kind.
union Record {
  CUpti_Activity any;
  CUpti_ActivityKernel10 kernel;
  CUpti_ActivityMemcpy6 copy;
  CUpti_ActivityMemset4 fill;
  CUpti_ActivityExternalCorrelation number;
};

// What CUPTI would do. Its functions find it globally, so only one may exist.
struct FakeCupti {
  std::uint32_t version = CUPTI_API_VERSION;
  std::map<std::string, CUptiResult> faults;  // by the function; enabling: by the kind's number too
  std::vector<Record> records;                // that the next flush gives away
  std::size_t dropped = 0;                    // as CUPTI counts them for the next buffer

  std::vector<std::uint64_t> numbers;  // pushed and not popped

  int subscribers = 0, flushes = 0;
  std::vector<CUpti_ActivityKind> enabled;
  CUpti_BuffersCallbackRequestFunc request = nullptr;
  CUpti_BuffersCallbackCompleteFunc complete = nullptr;

  FakeCupti();
  ~FakeCupti();
  CUptiResult result(const std::string& function) const {
    const auto found = faults.find(function);
    return found == faults.end() ? CUPTI_SUCCESS : found->second;
  }
  // Gives the records away in a buffer that the program made.
  void give() {
    std::uint8_t* buffer = nullptr;
    std::size_t bytes = 0, most = 1;
    request(&buffer, &bytes, &most);
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer) % 8, 0u);
    EXPECT_EQ(most, 0u);
    const std::size_t valid = records.size() * sizeof(Record);
    ASSERT_LE(valid, bytes);
    std::memcpy(buffer, records.data(), valid);
    records.clear();
    complete(nullptr, 0, buffer, bytes, valid);
  }
};

FakeCupti* fake = nullptr;

FakeCupti::FakeCupti() {
  fake = this;
}
FakeCupti::~FakeCupti() {
  fake = nullptr;
}

Cupti table() {
  Cupti library = {};
  library.get_version = [](std::uint32_t* version) {
    *version = fake->version;
    return CUPTI_SUCCESS;
  };
  library.result_string = [](CUptiResult result, const char** text) {
    if (result == CUPTI_ERROR_UNKNOWN) return CUPTI_ERROR_INVALID_PARAMETER;
    *text = "CUPTI_ERROR_SCRIPTED";
    return CUPTI_SUCCESS;
  };
  library.subscribe = [](CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc callback, void*) {
    if (const CUptiResult fault = fake->result("subscribe"); fault != CUPTI_SUCCESS) return fault;
    EXPECT_NE(callback, nullptr);
    ++fake->subscribers;
    *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(fake);
    return CUPTI_SUCCESS;
  };
  library.unsubscribe = [](CUpti_SubscriberHandle) {
    --fake->subscribers;
    return CUPTI_SUCCESS;
  };
  library.register_callbacks = [](CUpti_BuffersCallbackRequestFunc request,
                                  CUpti_BuffersCallbackCompleteFunc complete) {
    fake->request = request;
    fake->complete = complete;
    return fake->result("register");
  };
  library.enable = [](CUpti_ActivityKind kind) {
    const CUptiResult fault = fake->result("enable " + std::to_string(kind));
    if (fault == CUPTI_SUCCESS) fake->enabled.push_back(kind);
    return fault;
  };
  library.disable = [](CUpti_ActivityKind kind) {
    EXPECT_EQ(std::erase(fake->enabled, kind), 1u) << kind;
    return CUPTI_SUCCESS;
  };
  library.flush_all = [](std::uint32_t flag) {
    EXPECT_EQ(flag, static_cast<std::uint32_t>(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED));
    ++fake->flushes;
    if (const CUptiResult fault = fake->result("flush"); fault != CUPTI_SUCCESS) return fault;
    if (!fake->records.empty()) fake->give();
    return CUPTI_SUCCESS;
  };
  library.next_record = [](std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
    std::uint8_t* next =
        *record == nullptr ? buffer : reinterpret_cast<std::uint8_t*>(*record) + sizeof(Record);
    if (next >= buffer + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = reinterpret_cast<CUpti_Activity*>(next);
    return CUPTI_SUCCESS;
  };
  library.dropped_records = [](CUcontext, std::uint32_t, std::size_t* dropped) {
    *dropped = std::exchange(fake->dropped, 0);
    return CUPTI_SUCCESS;
  };
  library.push_number = [](CUpti_ExternalCorrelationKind kind, std::uint64_t number) {
    EXPECT_EQ(kind, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    fake->numbers.push_back(number);
    return fake->result("push");
  };
  library.pop_number = [](CUpti_ExternalCorrelationKind kind, std::uint64_t*) {
    EXPECT_EQ(kind, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0);
    if (fake->numbers.empty()) return CUPTI_ERROR_QUEUE_EMPTY;
    fake->numbers.pop_back();
    return CUPTI_SUCCESS;
  };
  return library;
}

Record kernel(const char* name, std::uint64_t start, std::uint64_t end) {
  Record record{};
  record.kernel.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.kernel.name = name;
  record.kernel.start = start;
  record.kernel.end = end;
  return record;
}

Record copy(CUpti_ActivityMemcpyKind kind, std::uint64_t bytes) {
  Record record{};
  record.copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  record.copy.copyKind = static_cast<std::uint8_t>(kind);
  record.copy.bytes = bytes;
  record.copy.start = 10;
  record.copy.end = 30;
  return record;
}

Record fill(std::uint64_t bytes) {
  Record record{};
  record.fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  record.fill.bytes = bytes;
  record.fill.start = 5;
  record.fill.end = 6;
  return record;
}

std::string refusal() {
  return testing::message_of<CudaError>([] { cuda::make_cupti_trace(table()); });
}

void expect_nothing_left() {
  EXPECT_EQ(fake->subscribers, 0);
  EXPECT_TRUE(fake->enabled.empty());
}

TEST(CuptiTrace, KernelsCopiesAndFillsAreUnderstood) {
  FakeCupti cupti;
  const auto trace = cuda::make_cupti_trace(table());
  cupti.records = {kernel("norm", 100, 250),
                   copy(CUPTI_ACTIVITY_MEMCPY_KIND_HTOD, 64),
                   copy(CUPTI_ACTIVITY_MEMCPY_KIND_DTOH, 64),
                   copy(CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, 64),
                   copy(CUPTI_ACTIVITY_MEMCPY_KIND_PTOP, 64),
                   fill(32),
                   kernel(nullptr, 1, 2)};
  const KernelRecords records = trace->take();
  EXPECT_EQ(records.lost, 0u);
  ASSERT_EQ(records.work.size(), 7u);
  EXPECT_EQ(records.work[0].name, "norm");
  EXPECT_TRUE(records.work[0].kernel);
  EXPECT_EQ(records.work[0].begin_ns, 100);
  EXPECT_EQ(records.work[0].end_ns, 250);
  const char* const names[] = {"copy to device", "copy to host", "copy on device", "copy"};
  for (std::size_t i = 0; i < 4; ++i) {
    const DeviceWork& work = records.work[1 + i];
    EXPECT_EQ(work.name, names[i]);
    EXPECT_FALSE(work.kernel);
    EXPECT_EQ(work.begin_ns, 10);
    EXPECT_EQ(work.end_ns, 30);
    EXPECT_EQ(work.bytes, i == 2 ? 128.0 : 0.0);  // read and written; others cross the bus
  }
  EXPECT_EQ(records.work[5].name, "fill");
  EXPECT_EQ(records.work[5].bytes, 32.0);
  EXPECT_EQ(records.work[6].name, "");
  EXPECT_TRUE(trace->take().work.empty()) << "what was taken does not come again";
}

// A record of a call comes before or behind that of the work which it queued.
TEST(CuptiTrace, WorkHasTheNumberOfItsOperation) {
  FakeCupti cupti;
  const auto trace = cuda::make_cupti_trace(table());
  trace->begin_operation(7);
  trace->begin_operation(8);
  EXPECT_EQ(cupti.numbers, (std::vector<std::uint64_t>{7, 8}));
  trace->end_operation();
  trace->end_operation();
  EXPECT_TRUE(cupti.numbers.empty());
  const auto call = [](std::uint32_t correlation, std::uint64_t number,
                       CUpti_ExternalCorrelationKind kind) {
    Record record{};
    record.number.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
    record.number.externalKind = kind;
    record.number.correlationId = correlation;
    record.number.externalId = number;
    return record;
  };
  constexpr auto kOurs = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  Record api{};
  api.any.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  Record first = kernel("first", 1, 2), second = kernel("second", 3, 4),
         third = copy(CUPTI_ACTIVITY_MEMCPY_KIND_DTOD, 8), none = kernel("none", 9, 9);
  Record lost = kernel("lost", 100, 0);
  first.kernel.correlationId = 11;
  lost.kernel.correlationId = 12;
  second.kernel.correlationId = 13;
  third.copy.correlationId = 14;
  none.kernel.correlationId = 15;
  cupti.records = {call(11, 7, kOurs),
                   api,
                   first,
                   lost,
                   call(12, 1, kOurs),
                   second,
                   call(13, 8, kOurs),
                   call(13, 99, CUPTI_EXTERNAL_CORRELATION_KIND_OPENACC),
                   third,
                   call(14, 8, kOurs),
                   none};
  const KernelRecords records = trace->take();
  ASSERT_EQ(records.work.size(), 4u);
  EXPECT_EQ(records.lost, 1u);
  const std::uint64_t numbers[] = {7, 8, 8, 0};
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(records.work[i].operation, numbers[i]) << i;
  cupti.records = {first};
  EXPECT_EQ(trace->take().work.at(0).operation, 0u) << "calls are those of one take";
  cupti.faults["push"] = CUPTI_ERROR_INVALID_PARAMETER;
  EXPECT_EQ(testing::message_of<CudaError>([&] { trace->begin_operation(1); }),
            "cuptiActivityPushExternalCorrelationId: CUPTI_ERROR_SCRIPTED");
}

TEST(CuptiTrace, FullBuffersComeBeforeTheFlush) {
  FakeCupti cupti;
  const auto trace = cuda::make_cupti_trace(table());
  cupti.records = {kernel("a", 1, 2)};
  cupti.give();
  cupti.records = {kernel("b", 3, 4)};
  EXPECT_EQ(trace->take().work.size(), 2u);
}

TEST(CuptiTrace, WhatIsLostIsCounted) {
  FakeCupti cupti;
  const auto trace = cuda::make_cupti_trace(table());
  cupti.dropped = 5;
  cupti.records = {kernel("still runs", 100, 0), kernel("not timed", 0, 0), kernel("a", 1, 2)};
  const KernelRecords records = trace->take();
  EXPECT_EQ(records.lost, 7u);
  ASSERT_EQ(records.work.size(), 1u);
  EXPECT_EQ(records.work[0].name, "a");
  EXPECT_EQ(trace->take().lost, 0u);
}

TEST(CuptiTrace, EndsWithTheObject) {
  FakeCupti cupti;
  {
    const auto trace = cuda::make_cupti_trace(table());
    EXPECT_EQ(cupti.subscribers, 1);
    EXPECT_EQ(cupti.enabled,
              (std::vector<CUpti_ActivityKind>{
                  CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                  CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_RUNTIME,
                  CUPTI_ACTIVITY_KIND_DRIVER, CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION}));
    cupti.records = {kernel("never taken", 1, 2)};
  }
  EXPECT_EQ(cupti.flushes, 1);
  expect_nothing_left();
  // CUPTI may give a buffer away later, and no other trace has what is in it.
  cupti.records = {kernel("late", 1, 2)};
  cupti.give();
  EXPECT_TRUE(cuda::make_cupti_trace(table())->take().work.empty());
}

TEST(CuptiTrace, OneAtATime) {
  FakeCupti cupti;
  auto first = cuda::make_cupti_trace(table());
  EXPECT_EQ(refusal(), "CUPTI: kernels are traced already");
  cupti.records = {kernel("a", 1, 2)};
  EXPECT_EQ(first->take().work.size(), 1u) << "the refusal left the first one alone";
  first.reset();
  EXPECT_NO_THROW(cuda::make_cupti_trace(table()));
}

TEST(CuptiTrace, AnotherToolThatHoldsItIsNamed) {
  FakeCupti cupti;
  cupti.faults["subscribe"] = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  EXPECT_EQ(refusal(), "CUPTI is held by another tool, which traces this program");
  expect_nothing_left();
  cupti.faults.clear();
  EXPECT_NO_THROW(cuda::make_cupti_trace(table()));
}

TEST(CuptiTrace, WhatHasBegunEndsWhereItGoesNoFurther) {
  FakeCupti cupti;
  cupti.faults["register"] = CUPTI_ERROR_INVALID_PARAMETER;
  EXPECT_EQ(refusal(), "cuptiActivityRegisterCallbacks: CUPTI_ERROR_SCRIPTED");
  expect_nothing_left();
  cupti.faults.clear();
  cupti.faults["enable " + std::to_string(CUPTI_ACTIVITY_KIND_MEMSET)] = CUPTI_ERROR_NOT_COMPATIBLE;
  EXPECT_EQ(refusal(), "cuptiActivityEnable: CUPTI_ERROR_SCRIPTED");
  expect_nothing_left();
}

TEST(CuptiTrace, AFlushThatFailsIsSaid) {
  FakeCupti cupti;
  const auto trace = cuda::make_cupti_trace(table());
  cupti.faults["flush"] = CUPTI_ERROR_UNKNOWN;  // without a name
  EXPECT_EQ(testing::message_of<CudaError>([&] { trace->take(); }),
            "cuptiActivityFlushAll: error " + std::to_string(CUPTI_ERROR_UNKNOWN));
}

TEST(CuptiTrace, AnotherMajorVersionIsRefused) {
  FakeCupti cupti;
  const std::uint32_t major = CUPTI_API_VERSION / 10000;
  for (const std::uint32_t version : {26u, (major - 1) * 10000 + 9, (major + 1) * 10000, 0u}) {
    cupti.version = version;
    EXPECT_EQ(refusal(), "CUPTI here has version " + std::to_string(version) +
                             ", but this program knows the records of " + std::to_string(major) +
                             ".*");
    expect_nothing_left();
  }
  cupti.version = major * 10000 + 900;
  EXPECT_NO_THROW(cuda::make_cupti_trace(table()));
}

std::string refusal_of(const std::vector<std::string>& names) {
  return testing::message_of<CudaError>([&] { cuda::load_cupti(names); });
}

TEST(CuptiLibrary, SaysWhatIsMissing) {
  const std::string message = refusal_of({"libnone.so.1", "/nowhere/libnone.so.1"});
  EXPECT_EQ(message.find("CUPTI, which traces kernels, is not here: libnone.so.1"), 0u) << message;
  EXPECT_NE(message.find("(tried libnone.so.1, /nowhere/libnone.so.1)"), std::string::npos)
      << message;
  EXPECT_EQ(refusal_of({"libm.so.6"}), "libm.so.6 has no function cuptiGetVersion");
}

// The real one, which needs no GPU to say its version.
TEST(CuptiLibrary, HasTheFunctions) {
  const auto names = cuda_library_names("cupti", CUPTI_API_VERSION / 10000);
  if (!DynamicLibrary(names).found()) GTEST_SKIP() << "CUPTI is not here";
  const Cupti library = cuda::load_cupti(names);
  std::uint32_t version = 0;
  EXPECT_EQ(library.get_version(&version), CUPTI_SUCCESS);
  EXPECT_EQ(version / 10000, CUPTI_API_VERSION / 10000);
  const char* text = nullptr;
  EXPECT_EQ(library.result_string(CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, &text),
            CUPTI_SUCCESS);
  EXPECT_STREQ(text, "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED");
}

}  // namespace
}  // namespace trireme

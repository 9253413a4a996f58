// A stand-in for the toolkit's libcupti.so: each flush gives away the records of a step with two
// kernels, a fill and a gap of 1 ms, and says that three others were lost.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include <cupti.h>

namespace {

constexpr std::uint64_t kMillisecond = 1'000'000;

CUpti_BuffersCallbackRequestFunc request_buffer = nullptr;
CUpti_BuffersCallbackCompleteFunc complete_buffer = nullptr;

std::uint64_t first_number = 0;  // that was pushed since the last flush

struct Step {
  std::array<CUpti_ActivityKernel10, 3> kernels = {};
  CUpti_ActivityMemset4 fill = {};
  CUpti_ActivityExternalCorrelation product = {};  // which makes both kernels of that name
};

Step step() {
  Step made;
  const char* const names[] = {"_ZN4fake4gemmIfEEvPKT_PS1_", "_ZN4fake4normEPf",
                               "_ZN4fake4gemmIfEEvPKT_PS1_"};
  std::uint64_t start = 10 * kMillisecond;
  for (std::size_t i = 0; i < made.kernels.size(); ++i) {
    made.kernels[i].kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    made.kernels[i].name = names[i];
    made.kernels[i].start = start;
    made.kernels[i].end = start + 2 * kMillisecond;
    start += (i == 0 ? 2 : 3) * kMillisecond;
    made.kernels[i].correlationId = i == 1 ? 0 : 1;
  }
  made.product.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  made.product.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  made.product.correlationId = 1;
  made.product.externalId = first_number;
  made.fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  made.fill.bytes = 4096;
  made.fill.start = 14 * kMillisecond;
  made.fill.end = made.fill.start + kMillisecond / 2;
  return made;
}

}  // namespace

extern "C" {

CUptiResult cuptiGetVersion(std::uint32_t* version) {
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "CUPTI_ERROR_OF_THE_FAKE";
  return CUPTI_SUCCESS;
}
// TRIREME_FAKE_CUPTI=held: another tool was first.
CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* subscriber, CUpti_CallbackFunc, void*) {
  const char* const state = std::getenv("TRIREME_FAKE_CUPTI");
  if (state != nullptr && std::string_view(state) == "held") {
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  *subscriber = reinterpret_cast<CUpti_SubscriberHandle>(&request_buffer);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  request_buffer = request;
  complete_buffer = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityDisable(CUpti_ActivityKind) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushAll(std::uint32_t) {
  std::uint8_t* buffer = nullptr;
  std::size_t bytes = 0, most = 0;
  request_buffer(&buffer, &bytes, &most);
  const Step made = step();
  first_number = 0;
  if (bytes < sizeof made) return CUPTI_ERROR_OUT_OF_MEMORY;
  std::memcpy(buffer, &made, sizeof made);
  complete_buffer(nullptr, 0, buffer, bytes, sizeof made);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t, CUpti_Activity** record) {
  auto* const step = reinterpret_cast<Step*>(buffer);
  auto* const kernel = reinterpret_cast<CUpti_ActivityKernel10*>(*record);
  if (*record == nullptr) {
    *record = reinterpret_cast<CUpti_Activity*>(&step->kernels.front());
  } else if (kernel == &step->kernels.back()) {
    *record = reinterpret_cast<CUpti_Activity*>(&step->fill);
  } else if ((*record)->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
    *record = reinterpret_cast<CUpti_Activity*>(&step->product);
  } else if ((*record)->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  } else {
    *record = reinterpret_cast<CUpti_Activity*>(kernel + 1);
  }
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind,
                                                   std::uint64_t number) {
  if (first_number == 0) first_number = number;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind, std::uint64_t*) {
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = 3;
  return CUPTI_SUCCESS;
}

}  // extern "C"

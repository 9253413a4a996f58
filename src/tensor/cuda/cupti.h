// CUPTI behind KernelTrace. Only in builds with its header.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <cupti.h>

#include "trireme/tensor/kernel_trace.h"

namespace trireme::cuda {

// The functions of CUPTI that we use. Tests pass their own.
struct Cupti {
  decltype(&cuptiGetVersion) get_version;
  decltype(&cuptiGetResultString) result_string;
  decltype(&cuptiSubscribe) subscribe;
  decltype(&cuptiUnsubscribe) unsubscribe;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks;
  decltype(&cuptiActivityEnable) enable;
  decltype(&cuptiActivityDisable) disable;
  decltype(&cuptiActivityFlushAll) flush_all;
  decltype(&cuptiActivityGetNextRecord) next_record;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records;
  decltype(&cuptiActivityPushExternalCorrelationId) push_number;
  decltype(&cuptiActivityPopExternalCorrelationId) pop_number;
};

// Loads the functions from the first of `names` (sonames or paths) that opens. Throws CudaError if
// none does, or if it lacks a function.
Cupti load_cupti(const std::vector<std::string>& names);

// Throws CudaError where the library is of another major version than the header, since the layout
// of records is the version's, or where it does not start.
std::unique_ptr<KernelTrace> make_cupti_trace(const Cupti& library);

}  // namespace trireme::cuda

// The handle of a communication whose result is on a device.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/flight_recorder.h"
#include "trireme/comm/work.h"
#include "trireme/tensor/cuda.h"

namespace trireme {

using Events = std::vector<std::shared_ptr<cuda::Event>>;

// `host` is done when the device is done too; its faults are those of the operation. A stream waits
// for the events alone, without the host, for their marks are queued already; a nullptr among them
// stands for one that is not, so that the host must wait first. Without events: `host` itself.
Work make_device_work(Work host, Events events, FlightRecorder& recorder);

// The Work of what is queued on `stream` by now.
Work mark_device_work(const Stream& stream);

}  // namespace trireme

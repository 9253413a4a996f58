// The handle of a communication whose result is on a device.
#pragma once

#include <memory>
#include <vector>

#include "trireme/comm/flight_recorder.h"
#include "trireme/comm/work.h"
#include "trireme/tensor/cuda.h"

namespace trireme {

using Events = std::vector<std::shared_ptr<cuda::Event>>;

// Makes a Work from `host`, which is done when the device is done too and throws the operation's
// faults. A stream waits only for the events, without the host, because they are already recorded.
// A nullptr among them stands for an event that is not recorded yet, so the host must wait first.
// Without events the result is `host` itself.
Work make_device_work(Work host, Events events, FlightRecorder& recorder);

// Returns a Work for what is queued on `stream` now.
Work mark_device_work(const Stream& stream);

}  // namespace trireme

// What the system counts of this process's memory.
#pragma once

namespace trireme {

// The most that was resident at one time, in bytes; program and libraries included.
double peak_resident_bytes();

}  // namespace trireme

// What the system counts of this process's memory.
#pragma once

namespace trireme {

// The most that was resident at one time, in bytes; program and libraries included.
double peak_resident_bytes();

// Of this machine, in bytes.
double physical_memory_bytes();

}  // namespace trireme

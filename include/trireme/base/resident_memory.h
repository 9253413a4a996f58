// The memory of this process and of the machine, as the system reports it.
#pragma once

namespace trireme {

// The peak resident memory in bytes, including the program and its libraries.
double peak_resident_bytes();

// The physical memory of this machine in bytes.
double physical_memory_bytes();

}  // namespace trireme

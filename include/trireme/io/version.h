// How the HDF5 library in use was built. Its version is hdf5::library_version (hdf5.h).
#pragma once

namespace trireme::hdf5 {

// Whether the library is thread-safe by itself. This program does not need that: its own lock
// guards every call.
bool library_is_thread_safe();

}  // namespace trireme::hdf5

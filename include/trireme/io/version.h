// Which HDF5 this program runs on; its version is hdf5::library_version.
#pragma once

namespace trireme::hdf5 {

// Whether the library guards itself against several threads. This program needs no such library:
// its own lock guards every call.
bool library_is_thread_safe();

}  // namespace trireme::hdf5

// Turns any exception into an Error that a user can be told.
#pragma once

#include <exception>

#include "trireme/base/error.h"

namespace trireme {

// Returns an Error unchanged. Of other exceptions, an error of the file system or of a stream
// becomes a RunFolderError of Cause::kUnreadable, a failed allocation becomes an OutOfMemoryError,
// a refused thread becomes a fault of the device, and anything else becomes an InternalError.
Error caught(const std::exception_ptr& exception);

}  // namespace trireme

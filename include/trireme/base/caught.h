// What a user is told of an exception, whatever it is.
#pragma once

#include <exception>

#include "trireme/base/error.h"

namespace trireme {

// An Error as it is. Of others: what the file system refused is a RunFolderError, memory that is
// not to be had an OutOfMemoryError, anything else an InternalError.
Error caught(const std::exception_ptr& exception);

}  // namespace trireme

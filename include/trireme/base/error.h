// Every fault that trireme reports on purpose is an Error. Its class names the cause and decides
// the exit status of the program.
#pragma once

#include <stdexcept>
#include <string>

#include "trireme/base/exit_status.h"

namespace trireme {

// A place in the source. It replaces std::source_location, which Debian 12's clang and clang-tidy
// do not have.
struct SourceLocation {
  const char* file = "";
  int line = 0;

  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          int line = __builtin_LINE()) {
    return {file, line};
  }
};

// What a fault says about its subject. kWrong: it was seen, and it is wrong (a damaged file, a bad
// value). kUnreadable: the system could not show it (no permission, an input/output error), so it
// may well be sound. Nobody may take an unreadable file for absent or damaged.
enum class Cause { kWrong, kUnreadable };

// what() is one line for the user: what failed, where in the input, and what would be right.
// where() is the place in the source that found the fault.
class Error : public std::runtime_error {
 public:
  Error(ExitStatus status, const std::string& what, Cause cause = Cause::kWrong,
        SourceLocation where = SourceLocation::current());

  ExitStatus status() const { return status_; }
  Cause cause() const { return cause_; }
  bool unreadable() const { return cause_ == Cause::kUnreadable; }
  const SourceLocation& where() const { return where_; }

 private:
  ExitStatus status_;
  Cause cause_;
  SourceLocation where_;
};

// One class per cause, so that a handler can tell them apart by type.
#define TRIREME_ERROR_CLASS(Name, kStatus)                                                       \
  class Name : public Error {                                                                    \
   public:                                                                                       \
    explicit Name(const std::string& what, SourceLocation where = SourceLocation::current())     \
        : Error(ExitStatus::kStatus, what, Cause::kWrong, where) {}                              \
    Name(const std::string& what, Cause cause, SourceLocation where = SourceLocation::current()) \
        : Error(ExitStatus::kStatus, what, cause, where) {}                                      \
  }

TRIREME_ERROR_CLASS(ConfigError, kUsage);
TRIREME_ERROR_CLASS(DataError, kData);
TRIREME_ERROR_CLASS(CheckpointError, kCheckpoint);
TRIREME_ERROR_CLASS(RunFolderError, kRunFolder);
TRIREME_ERROR_CLASS(DivergedError, kDiverged);
TRIREME_ERROR_CLASS(InternalError, kInternal);
TRIREME_ERROR_CLASS(MpiError, kInternal);
TRIREME_ERROR_CLASS(LostRankError, kHangOrLostRank);
TRIREME_ERROR_CLASS(Hdf5Error, kInternal);
TRIREME_ERROR_CLASS(NcclError, kDevice);
TRIREME_ERROR_CLASS(CudaError, kDevice);
TRIREME_ERROR_CLASS(OutOfMemoryError, kDevice);

#undef TRIREME_ERROR_CLASS

// Throws an error that came from elsewhere (another rank, say), as the class of its status or as a
// plain Error.
[[noreturn]] void rethrow(ExitStatus status, const std::string& what, Cause cause = Cause::kWrong);

// Throws the same fault as the class of another status: a file that cannot be read is a fault of
// the data, of a checkpoint or of an output, whichever it was meant to be.
[[noreturn]] void rethrow_as(ExitStatus status, const Error& error);

// Throws InternalError if the condition is false: a contract between two parts of the program was
// broken. The message is built only when the check fails.
#define TRIREME_CHECK(condition, message)      \
  do {                                         \
    if (!(condition)) [[unlikely]] {           \
      throw ::trireme::InternalError(message); \
    }                                          \
  } while (false)

}  // namespace trireme

#include "trireme/base/error.h"

#include <filesystem>
#include <ios>
#include <new>
#include <system_error>

#include "trireme/base/caught.h"
#include "trireme/base/printable.h"

#include "process_limits.h"

namespace trireme {

Error::Error(ExitStatus status, const std::string& what, Cause cause, SourceLocation where)
    : std::runtime_error(shown(what, kMostOfMessage)),
      status_(status),
      cause_(cause),
      where_(where) {}

Error caught(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return OutOfMemoryError("out of memory" + words_on_memory_limit());
  } catch (const std::filesystem::filesystem_error& error) {
    return RunFolderError(shown(error.path1().string()) + ": " + error.code().message(),
                          Cause::kUnreadable);
  } catch (const std::ios_base::failure& error) {
    return RunFolderError(error.what(), Cause::kUnreadable);
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      return InternalError(error.what());
    }
    return Error(ExitStatus::kDevice,
                 "no more threads or processes can be made; " + words_on_thread_limits());
  } catch (const std::exception& error) {
    return InternalError(error.what());
  } catch (...) {
    return InternalError("an exception of unknown type");
  }
}

void rethrow(ExitStatus status, const std::string& what, Cause cause) {
  switch (status) {
    case ExitStatus::kUsage:
      throw ConfigError(what, cause);
    case ExitStatus::kData:
      throw DataError(what, cause);
    case ExitStatus::kCheckpoint:
      throw CheckpointError(what, cause);
    case ExitStatus::kRunFolder:
      throw RunFolderError(what, cause);
    case ExitStatus::kInternal:
      throw InternalError(what, cause);
    default:
      throw Error(status, what, cause);
  }
}

void rethrow_as(ExitStatus status, const Error& error) {
  rethrow(status, error.what(), error.cause());
}

}  // namespace trireme

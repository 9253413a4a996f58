#include "trireme/base/error.h"

namespace trireme {

Error::Error(ExitStatus status, const std::string& what, SourceLocation where)
    : std::runtime_error(what), status_(status), where_(where) {}

void rethrow(ExitStatus status, const std::string& what) {
  switch (status) {
    case ExitStatus::kUsage:
      throw ConfigError(what);
    case ExitStatus::kData:
      throw DataError(what);
    case ExitStatus::kCheckpoint:
      throw CheckpointError(what);
    case ExitStatus::kRunFolder:
      throw RunFolderError(what);
    case ExitStatus::kInternal:
      throw InternalError(what);
    default:
      throw Error(status, what);
  }
}

}  // namespace trireme

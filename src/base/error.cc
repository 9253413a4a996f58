#include "trireme/base/error.h"

namespace trireme {

Error::Error(ExitStatus status, const std::string& what, SourceLocation where)
    : std::runtime_error(what), status_(status), where_(where) {}

}  // namespace trireme

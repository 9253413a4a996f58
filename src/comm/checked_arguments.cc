#include "trireme/comm/checked_arguments.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

void check_member(const Communicator& comm, int member) {
  TRIREME_CHECK(0 <= member && member < comm.size(),
                fmt::format("rank {} of communicator {} of {}", member, comm.name(), comm.size()));
}

void check_parts(const Communicator& comm, std::string_view operation, const Tensor& whole,
                 const Tensor& part) {
  TRIREME_CHECK(whole.dtype() == part.dtype() && whole.elements() == part.elements() * comm.size(),
                fmt::format("{} among {} ranks between {} and {}", operation, comm.size(),
                            whole.shape().to_string(), part.shape().to_string()));
}

void check_all_to_all(const Communicator& comm, const Tensor& input, const Tensor& output) {
  TRIREME_CHECK(input.bytes() == output.bytes() && input.elements() % comm.size() == 0,
                fmt::format("all_to_all of {} into {} among {} ranks", input.shape().to_string(),
                            output.shape().to_string(), comm.size()));
}

}  // namespace trireme

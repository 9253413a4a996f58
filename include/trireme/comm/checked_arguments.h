// What every communicator demands of the arguments of its operations.
#pragma once

#include <string_view>

#include "trireme/comm/communicator.h"

namespace trireme {

// These throw InternalError where a caller breaks the contract: `member` is no rank of `comm`;
// `whole` is not made of as many `part`s as it has ranks; an all_to_all of tensors that do not fit.
void check_member(const Communicator& comm, int member);
void check_parts(const Communicator& comm, std::string_view operation, const Tensor& whole,
                 const Tensor& part);
void check_all_to_all(const Communicator& comm, const Tensor& input, const Tensor& output);

}  // namespace trireme

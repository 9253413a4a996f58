// A tensor's values on the host, a piece at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "trireme/ops/context.h"
#include "trireme/tensor/tensor.h"

namespace trireme::parallel {

// Calls `visit` with the elements of a flat tensor in order, as fp32 on the host, and with the
// number of the first of them. A piece has at most 2^22 elements, so little memory is needed. Waits
// for the context's stream.
void visit_on_host(ops::Context& ctx, const Tensor& flat,
                   const std::function<void(std::int64_t first, std::span<const float>)>& visit);

}  // namespace trireme::parallel

#include "trireme/comm/communicator.h"

#include <cstdint>

namespace trireme {

bool Communicator::agree(bool ok) {
  return all_reduce_host(std::int32_t{ok ? 1 : 0}, ReduceOp::kMin) == 1;
}

std::string Communicator::broadcast_text(std::string text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(Stream(), Tensor::wrap(std::span(&length, 1)), root).wait_host();
  text.resize(static_cast<std::size_t>(length));
  if (length > 0) {
    broadcast(Stream(), Tensor::wrap(text.data(), {length}, DType::kU8), root).wait_host();
  }
  return text;
}

}  // namespace trireme

#include "parallel/schedule_text.h"

#include <fmt/format.h>

namespace trireme::parallel {

std::string_view name_of(PipelineStep::Kind kind) {
  using enum PipelineStep::Kind;
  switch (kind) {
    case kForward:
      return "forward";
    case kBackwardInput:
      return "backward-input";
    case kBackwardWeight:
      return "backward-weight";
    case kExchange:
      break;
  }
  return "exchange";
}

std::string_view name_of(PipelineMessage::Payload payload) {
  return payload == PipelineMessage::Payload::kActivation ? "activation" : "gradient";
}

std::string name_of(int micro_batch, int chunk, int chunks) {
  return chunks == 1 ? fmt::format("micro-batch {}", micro_batch)
                     : fmt::format("micro-batch {}, chunk {}", micro_batch, chunk);
}

std::string name_of(const PipelineMessage& message, int chunks) {
  return fmt::format("the {} of {}", name_of(message.payload),
                     name_of(message.micro_batch, message.chunk, chunks));
}

}  // namespace trireme::parallel

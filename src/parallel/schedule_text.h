// How messages about schedules name steps and values.
#pragma once

#include <string>
#include <string_view>

#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

std::string_view name_of(PipelineStep::Kind kind);
std::string_view name_of(PipelineMessage::Payload payload);
// "micro-batch 3", or "micro-batch 3, chunk 1" if there are several chunks.
std::string name_of(int micro_batch, int chunk, int chunks);
std::string name_of(const PipelineMessage& message, int chunks);

}  // namespace trireme::parallel

// Extrapolates from dry runs of few micro-batches to one of many.
#pragma once

#include <cstdint>

#include "trireme/plan/dry_run.h"

namespace trireme::plan {

// Makes `more` the result for `periods` further periods of micro-batches, each of which adds what
// `more` has beyond `fewer`. Throws OutOfMemoryError where a rank would need more than 8 EiB.
void extrapolate(DryRunResult& more, const DryRunResult& fewer, std::int64_t periods);

}  // namespace trireme::plan

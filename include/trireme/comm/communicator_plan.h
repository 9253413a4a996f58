// How a communicator carries its collectives, and what it knows of its ranks' places.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/algorithm_trials.h"
#include "trireme/comm/algorithms.h"
#include "trireme/comm/rank_blocks.h"
#include "trireme/comm/segments.h"

namespace trireme {

struct CommunicatorPlan {
  AlgorithmTable algorithms = AlgorithmTable();
  // Numbered as the communicator's ranks. nullptr: nothing is known of the places.
  std::shared_ptr<const RankBlocks> blocks = {};
  // A message of this size costs the network between these ranks more time than its start.
  std::size_t worthwhile_bytes = kWorthwhileBytes;
  // The table for kRoundedSum, whose bits depend on the algorithm, where it is another one.
  std::optional<AlgorithmTable> of_rounded_sums = {};
  // Tries other algorithms than those of the table; nullptr: nothing is tried. They do not carry
  // what `of_rounded_sums` is for.
  std::shared_ptr<AlgorithmTrials> trials = {};
};

// The table, the blocks and the worthwhile bytes of a plan as one line of text, without blanks at
// its ends, and back. The reader throws InternalError for text that is not such a plan, because
// only another rank of the same program writes it.
std::string plan_to_text(const CommunicatorPlan& plan);
CommunicatorPlan plan_from_text(std::string_view text);

// Makes the plan of a communicator from its name and its world ranks, in its own numbering.
using CommunicatorPlanner =
    std::function<CommunicatorPlan(const std::string& name, const std::vector<int>& world_ranks)>;

}  // namespace trireme

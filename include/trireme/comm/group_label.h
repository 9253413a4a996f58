// What a communicator is: which ranks of the grid it joins, and what for.
#pragma once

#include <string>
#include <utility>

#include "trireme/comm/span.h"

namespace trireme {

// What its operations carry.
enum class Purpose {
  kOther,
  kGradients,    // to be added up over replicas, or over uses of a parameter
  kWeights,      // shards, to be brought together
  kActivations,  // and their gradients, of a micro-batch
  kBlocks,       // what blocks of all replicas compute together
  kState,        // of the step: norms, numbers, agreements
  kMeetings,     // what islands have learned
};

struct GroupLabel {
  GroupLabel(std::string named, Span ranks = {}, Purpose carries = Purpose::kOther)
      : name(std::move(named)), span(std::move(ranks)), purpose(carries) {}
  GroupLabel(const char* named) : name(named) {}
  bool operator==(const GroupLabel&) const = default;

  std::string name;  // for messages, traces and plans: "tensor"
  Span span;
  Purpose purpose = Purpose::kOther;
};

}  // namespace trireme

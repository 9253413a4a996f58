// The ranks that prepare one corpus together, or the one process that is alone.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

namespace trireme {

class PrepareRanks {
 public:
  // nullptr: this process is alone.
  explicit PrepareRanks(Communicator* world) : world_(world) {}

  int rank() const { return world_ ? world_->rank() : 0; }
  int size() const { return world_ ? world_->size() : 1; }
  bool alone() const { return size() == 1; }

  // Collective. As Communicator::read_once.
  std::string read_once(const std::function<std::string()>& read);
  // Collective. Every rank's text, on every rank.
  std::vector<std::string> gather(std::string text);
  // Collective. As run_together.
  void together(const std::function<void()>& body);

  // What the ranks have done.
  struct Done {
    std::uint64_t bytes_read = 0;
    std::uint64_t made = 0;
  };
  // Is told the sum over the ranks, now and then, on all of them. What it throws is a fault.
  using Tell = std::function<void(const Done&)>;
  using Beat = std::function<void(const Done&)>;  // is told what this rank has done
  // Collective. Runs the body, which calls the beat between pieces of work, and ends it on all
  // ranks soon after it has thrown on one. Then all throw the fault of the first such.
  void work_together(const std::function<void(const Beat&)>& body, const Tell& tell);

 private:
  Communicator* world_;
};

}  // namespace trireme

// What rules need of parameters whose elements lie on several ranks: how long they and their steps
// are, and averages of their rows and columns.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/parameter.h"
#include "trireme/optim/optimizer.h"

namespace trireme::optim {

class WholeParameters {
 public:
  // Collective over the ranks of a stage, each of which adds the same parameters, in one order.
  explicit WholeParameters(const ProcessGrid& grid);

  // Call it before the first step. Allocates what is kept of the parameter, which is zero.
  void add(ops::Context& ctx, const nn::Parameter& parameter, const UpdateRule& rule);
  bool empty() const { return members_.empty(); }
  // What the rule is told, at an address that stays. The parameter has been added.
  const WholeParameter& of(const nn::Parameter& parameter) const;
  // The rank holds these elements of the parameter's local memory, in `shard`, from element `first`
  // of its group's memory on.
  void hold(const nn::Parameter& parameter, const FlatRange& elements, const FlatShard& shard,
            std::int64_t first);

  // Collective over the ranks that hold parts of the same parameters, each. Every rank gets the
  // same bits, whichever parts the ranks hold.
  void average_lines(ops::Context& ctx) const;
  void take_lengths(ops::Context& ctx) const;  // sets WholeParameter::squares
  // Makes the same communication alone.
  void connect(ops::Context& ctx) const;

  std::vector<Optimizer::WholeState> states() const;  // the averages of lines

 private:
  struct Member {
    const nn::Parameter* parameter;
    const UpdateRule* rule;
    const LineWork* lines;  // null: none
    WholeParameter whole;
    FlatShard shard;  // undefined: this rank holds no element
    std::int64_t first = 0;
    std::int64_t line_count() const;
  };
  // Neither parameters nor gradients that other ranks of the sum have, too, count.
  bool counts(const Member& member) const;
  Tensor make_sums(ops::Context& ctx) const;   // of lines; undefined: there are none
  Tensor make_limbs(ops::Context& ctx) const;  // of lengths; undefined: none are needed
  void add_up(ops::Context& ctx, const Tensor& sums) const;

  GridShape grid_;
  int place_;                           // of this rank
  std::shared_ptr<Communicator> comm_;  // the ranks whose parts make whole parameters
  std::deque<Member> members_;          // in the order of add()
  std::map<const nn::Parameter*, Member*> by_parameter_;
};

}  // namespace trireme::optim

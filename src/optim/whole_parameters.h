// What rules need of parameters whose elements lie on several ranks: how long they and their steps
// are, and averages of their rows and columns.
#pragma once

#include <vector>

#include "trireme/optim/optimizer.h"
#include "trireme/optim/parameter_sums.h"

namespace trireme::optim {

class WholeParameters {
 public:
  // A parameter, and the rule that wants to know of the whole.
  struct Wanted {
    const nn::Parameter* parameter;
    const UpdateRule* rule;
  };
  // Collective over the ranks of a stage, which want the same, in one order. Allocates what is kept
  // of the parameters, which is zero.
  WholeParameters(ops::Context& ctx, const ProcessGrid& grid, const std::vector<Wanted>& wanted);

  // The rank holds the parameter's elements from `first` of its group's memory on, which are
  // `shard`, with padding behind them. Returns what the rule is told, at an address that stays.
  // Call it before the first step, for parameters in the order of the constructor; those without
  // elements here are left out.
  const WholeParameter& hold(const nn::Parameter& parameter, const FlatShard& shard,
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
    const LineWork* lines;  // null: none
    WholeParameter whole;
    FlatShard shard;  // undefined: this rank holds no element
    std::int64_t first = 0;
    std::int64_t line_count() const;
  };
  Tensor make_sums(ops::Context& ctx) const;  // of lines; undefined: there are none

  ParameterSums sums_;
  std::vector<Member> members_;  // in the order of the constructor
  std::size_t held_ = 0;         // those before it are held, or have no elements here
  Tensor squares_;               // (2 for each that wants lengths) fp64; undefined: none does
};

}  // namespace trireme::optim

// Matrices whose elements lie on several ranks: each is brought together on one rank, changed there
// and sent back.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "trireme/comm/process_grid.h"
#include "trireme/nn/parameter.h"
#include "trireme/ops/context.h"
#include "trireme/optim/update_rule.h"

namespace trireme::optim {

// A parameter of more than two dimensions is a matrix of the first one and of the others together;
// it is held whole.
nn::Placement as_matrix(const nn::Placement& placement);

// Some rows of a parameter. The dimensions behind the first are the columns.
struct WholeMatrix {
  const nn::Parameter* parameter;
  FlatRange rows;
  const MatrixWork* work;

  std::int64_t columns() const;
  std::int64_t elements() const { return rows.size() * columns(); }
};

class WholeMatrices {
 public:
  // Collective over the ranks of a stage (the team): all have the same matrices, in one order, and
  // each holds of a matrix what its place in the grid says. Deals them to the ranks by cost; the
  // first rank of the team has the most elements.
  WholeMatrices(const ProcessGrid& grid, std::vector<WholeMatrix> matrices);

  // This rank's elements of a parameter's direction: those of its group's shard (FlatGroup::Part).
  using Held = std::map<const nn::Parameter*, Tensor>;
  // Collective over the team. Calls MatrixWork::whole for each matrix on its owner and puts the
  // result into `held` of all ranks.
  void run(ops::Context& ctx, const Held& held) const;
  // Collective over the team. Makes the same communication alone. Changes no element.
  void connect(ops::Context& ctx, const Held& held) const;

 private:
  struct Message;
  struct Gathered;
  Message message_of(const WholeMatrix& matrix, int place, int owner) const;  // places
  Tensor held_by_this_rank(const WholeMatrix& matrix, const Held& held) const;
  std::vector<Gathered> gather(ops::Context& ctx, const Held& held) const;
  void send_back(ops::Context& ctx, const std::vector<Gathered>& gathered, const Held& held) const;

  GridShape grid_;
  int place_;                           // of this rank
  std::vector<int> team_;               // places
  std::shared_ptr<Communicator> comm_;  // of the team; a rank's number is that of its place
  std::vector<WholeMatrix> matrices_;
  std::vector<int> owners_;  // by matrix
};

}  // namespace trireme::optim

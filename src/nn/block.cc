#include "trireme/nn/block.h"

namespace trireme::nn {

std::shared_ptr<Communicator> BuildContext::tensor_neighbours(int count) {
  std::shared_ptr<Communicator>& made = made_neighbours[count];
  if (made) return made;
  const Communicator& tensor = grid.comm(Axis::kTensor);
  const int first = tensor.rank() / count * count;
  std::vector<int> members;
  for (int i = 0; i < count; ++i) members.push_back(tensor.world_rank(first + i));
  made = grid.runtime().group("kv_copies", members);
  return made;
}

std::shared_ptr<Communicator> BuildContext::replicas() {
  if (!made_replicas) {
    made_replicas = grid.runtime().group("data_blocks", grid.ranks(kDataAxes));
  }
  return made_replicas;
}

}  // namespace trireme::nn

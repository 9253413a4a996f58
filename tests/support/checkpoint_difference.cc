// Prints the largest absolute difference between two checkpoints of one model, over all parameters,
// and where it is. usage: checkpoint_difference A B
#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

#include "trireme/io/checkpoint.h"

namespace {

std::vector<float> values_of(std::ifstream& file, const trireme::CheckpointTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.bytes()) / sizeof(float));
  file.seekg(tensor.offset);
  file.read(reinterpret_cast<char*>(values.data()), tensor.bytes());
  return values;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) return 2;
  const trireme::CheckpointContents a = trireme::inspect_checkpoint(arguments[1]);
  const trireme::CheckpointContents b = trireme::inspect_checkpoint(arguments[2]);
  std::ifstream file_a(arguments[1], std::ios::binary), file_b(arguments[2], std::ios::binary);
  double most = 0.0;
  std::string where = "-";
  for (const trireme::CheckpointTensor& tensor : a.tensors) {
    if (!tensor.name.starts_with("parameters/")) continue;
    const trireme::CheckpointTensor* other = b.find(tensor.name);
    if (other == nullptr || other->shape != tensor.shape) return 3;
    const std::vector<float> x = values_of(file_a, tensor), y = values_of(file_b, *other);
    if (!file_a || !file_b) return 4;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
      if (difference > most || std::isnan(difference)) {
        most = difference;
        where = tensor.name;
      }
    }
  }
  std::printf("%.9g %s\n", most, where.c_str());
}

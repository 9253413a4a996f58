// Prints the largest absolute difference between two checkpoints of one model, over all parameters,
// and where it is. With --bits, prints the tensors of any kind whose bytes are not the same.
// usage: checkpoint_difference [--bits] A B
#include <cmath>
#include <cstdio>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/checkpoint.h"

namespace {

std::vector<float> values_of(std::ifstream& file, const trireme::CheckpointTensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.bytes()) / sizeof(float));
  file.seekg(tensor.offset);
  file.read(reinterpret_cast<char*>(values.data()), tensor.bytes());
  return values;
}

std::string bytes_of(std::ifstream& file, const trireme::CheckpointTensor& tensor) {
  std::string bytes(static_cast<std::size_t>(tensor.bytes()), '\0');
  file.seekg(tensor.offset);
  file.read(bytes.data(), tensor.bytes());
  return bytes;
}

int compare_bits(const char* path_a, const char* path_b) {
  const trireme::CheckpointContents a = trireme::inspect_checkpoint(path_a);
  const trireme::CheckpointContents b = trireme::inspect_checkpoint(path_b);
  if (a.tensors.empty() || a.tensors.size() != b.tensors.size()) return 3;
  std::ifstream file_a(path_a, std::ios::binary), file_b(path_b, std::ios::binary);
  for (const trireme::CheckpointTensor& tensor : a.tensors) {
    const trireme::CheckpointTensor* other = b.find(tensor.name);
    if (other == nullptr || other->shape != tensor.shape) return 3;
    if (bytes_of(file_a, tensor) != bytes_of(file_b, *other)) std::puts(tensor.name.c_str());
    if (!file_a || !file_b) return 4;
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count == 4 && std::string_view(arguments[1]) == "--bits") {
    return compare_bits(arguments[2], arguments[3]);
  }
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

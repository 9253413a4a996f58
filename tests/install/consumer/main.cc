// Sums a tensor of ones; prints the sum and the tensor's shape.
#include <iostream>
#include <numeric>
#include <vector>

#include "trireme/tensor/tensor.h"

int main() {
  std::vector<float> ones(6, 1.0F);
  const trireme::Tensor tensor = trireme::Tensor::wrap(ones.data(), {2, 3}, trireme::DType::kF32);
  const auto values = tensor.span<float>();
  std::cout << std::accumulate(values.begin(), values.end(), 0.0F) << " "
            << tensor.shape().to_string() << "\n";
}

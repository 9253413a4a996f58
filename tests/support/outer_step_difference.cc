// Takes an outer step in float64 and prints by how much the state after it differs at most, and
// where: the plain reference of what members of a run make of their files.
// usage: outer_step_difference BEFORE AFTER RATE MOMENTUM [LEARNED WEIGHT]...
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "trireme/io/checkpoint.h"

namespace {

class File {
 public:
  explicit File(const char* path)
      : contents_(trireme::inspect_checkpoint(path)), bytes_(path, std::ios::binary) {}

  const std::vector<trireme::CheckpointTensor>& tensors() const { return contents_.tensors; }

  // Zeros where there is no such tensor.
  std::vector<double> values(const std::string& name, std::size_t count) {
    const trireme::CheckpointTensor* tensor = contents_.find(name);
    if (tensor == nullptr) return std::vector<double>(count, 0.0);
    std::vector<float> values(count);
    bytes_.seekg(tensor->offset);
    bytes_.read(reinterpret_cast<char*>(values.data()), tensor->bytes());
    return {values.begin(), values.end()};
  }

 private:
  trireme::CheckpointContents contents_;
  std::ifstream bytes_;
};

struct Difference {
  double most = 0.0;
  std::string where = "-";

  void look(const std::string& name, const std::vector<double>& a, const std::vector<double>& b) {
    for (std::size_t i = 0; i < a.size(); ++i) {
      const double difference = std::abs(a[i] - b[i]);
      if (difference <= most) continue;
      most = difference;
      where = name;
    }
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count < 7 || count % 2 == 0) return 2;
  File before(arguments[1]), after(arguments[2]);
  const double rate = std::atof(arguments[3]), momentum = std::atof(arguments[4]);
  std::vector<File> learned;
  std::vector<double> weights;
  double all = 0.0;
  for (int i = 5; i < count; i += 2) {
    learned.emplace_back(arguments[i]);
    weights.push_back(std::atof(arguments[i + 1]));
    all += weights.back();
  }
  const auto mean = [&](const std::string& name, std::size_t elements) {
    std::vector<double> sum(elements, 0.0);
    for (std::size_t k = 0; k < learned.size(); ++k) {
      const std::vector<double> values = learned[k].values(name, elements);
      for (std::size_t i = 0; i < elements; ++i) sum[i] += values[i] * weights[k] / all;
    }
    return sum;
  };
  Difference difference;
  for (const trireme::CheckpointTensor& tensor : after.tensors()) {
    const auto elements = static_cast<std::size_t>(tensor.shape.elements());
    if (tensor.name.starts_with("state/")) {
      difference.look(tensor.name, after.values(tensor.name, elements),
                      mean(tensor.name, elements));
    }
    if (!tensor.name.starts_with("parameters/")) continue;
    const std::string outer = "outer/" + tensor.name.substr(tensor.name.find('/') + 1);
    std::vector<double> values = before.values(tensor.name, elements);
    std::vector<double> velocity = before.values(outer + "/momentum", elements);
    const std::vector<double> gradient = mean(outer + "/learned", elements);
    for (std::size_t i = 0; i < elements; ++i) {
      velocity[i] = momentum * velocity[i] + gradient[i];
      values[i] -= rate * (momentum == 0.0 ? gradient[i] : gradient[i] + momentum * velocity[i]);
    }
    difference.look(tensor.name, after.values(tensor.name, elements), values);
    if (momentum == 0.0) continue;
    difference.look(outer + "/momentum", after.values(outer + "/momentum", elements), velocity);
  }
  std::printf("%.9g %s\n", difference.most, difference.where.c_str());
}

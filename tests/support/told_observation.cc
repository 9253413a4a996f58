#include "support/told_observation.h"

#include <cstdint>
#include <cstring>
#include <span>

namespace trireme::testing {
namespace {

class Packer {
 public:
  template <class T>
  void add(std::span<const T> values) {
    const std::uint64_t count = values.size();
    bytes_.append(reinterpret_cast<const char*>(&count), sizeof count);
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  void add(const LocalParts& parts) {
    for (const auto& [name, part] : parts) {
      add(std::span<const char>(name));
      for (const Shape* shape :
           {&part.placement.global, &part.placement.local, &part.placement.extent}) {
        add(shape->extents());
      }
      add(std::span<const std::int64_t>(part.placement.offset));
      add(std::span<const float>(part.values));
    }
    add(std::span<const char>());  // no name
  }
  std::string bytes() && { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string bytes) : bytes_(std::move(bytes)) {}

  template <class T>
  std::vector<T> next() {
    std::uint64_t count = 0;
    take(&count, sizeof count);
    std::vector<T> values(count);
    take(values.data(), count * sizeof(T));
    return values;
  }
  LocalParts next_parts() {
    LocalParts parts;
    for (;;) {
      const std::vector<char> name = next<char>();
      if (name.empty()) return parts;
      LocalPart part;
      for (Shape* shape : {&part.placement.global, &part.placement.local, &part.placement.extent}) {
        *shape = Shape(std::span<const std::int64_t>(next<std::int64_t>()));
      }
      part.placement.offset = next<std::int64_t>();
      part.values = next<float>();
      parts.emplace(std::string(name.begin(), name.end()), std::move(part));
    }
  }

 private:
  void take(void* to, std::size_t size) {
    if (size > 0) std::memcpy(to, bytes_.data() + at_, size);
    at_ += size;
  }

  std::string bytes_;
  std::size_t at_ = 0;
};

}  // namespace

Observed told(const Observed& here, int root, Communicator& world) {
  std::string bytes;
  if (world.rank() == root) {
    Packer packer;
    packer.add(here.gradients);
    packer.add(here.weights);
    packer.add(std::span<const double>(here.losses));
    packer.add(std::span<const double>(&here.evaluation, 1));
    bytes = std::move(packer).bytes();
  }
  Unpacker unpacker(world.broadcast_text(std::move(bytes), root));
  Observed observed;
  observed.gradients = unpacker.next_parts();
  observed.weights = unpacker.next_parts();
  observed.losses = unpacker.next<double>();
  observed.evaluation = unpacker.next<double>().front();
  return observed;
}

std::map<std::string, Observed> observe_shared(
    ops::Context& ctx, const ProcessGrid& alone,
    const std::vector<std::pair<std::string, EqualityCase>>& cases, Communicator& world) {
  std::vector<Observed> mine(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (static_cast<int>(i) % world.size() == world.rank())
      mine[i] = observe(ctx, alone, cases[i].second);
  }
  std::map<std::string, Observed> all;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    all.emplace(cases[i].first, told(mine[i], static_cast<int>(i) % world.size(), world));
  }
  return all;
}

LocalParts gradients_alone(ops::Context& ctx, const ProcessGrid& alone, const EqualityCase& test,
                           Communicator& world) {
  Observed observed;
  if (world.rank() == 0) observed.gradients = GradientObserver(ctx, alone, test).gradients();
  return told(observed, 0, world).gradients;
}

}  // namespace trireme::testing

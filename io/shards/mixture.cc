#include "trireme/base/error.h"
#include "trireme/io/dataset.h"

namespace trireme {

__extension__ using Wide = unsigned __int128;

Mixture::Mixture(std::vector<std::uint64_t> weights) : weights_(std::move(weights)) {
  for (const std::uint64_t weight : weights_) {
    TRIREME_CHECK(weight > 0, "a part of a mixture weighs nothing");
    total_ += weight;
  }
  TRIREME_CHECK(!weights_.empty(), "a mixture of nothing");
}

// The first part gives round(n * weight / total) of the first n samples. All other samples are a
// mixture of the parts after it. The arithmetic is in integers, so the shares never drift.
Mixture::Draw Mixture::draw(std::uint64_t n) const {
  std::uint64_t total = total_;
  for (std::size_t part = 0; part + 1 < weights_.size(); ++part) {
    const auto given = [&](std::uint64_t count) {
      return static_cast<std::uint64_t>((Wide{count} * weights_[part] + total / 2) / total);
    };
    const std::uint64_t before = given(n);
    if (given(n + 1) > before) return {part, before};
    n -= before;
    total -= weights_[part];
  }
  return {weights_.size() - 1, n};
}

}  // namespace trireme

#include "io/checkpoints/read_plan.h"

#include <algorithm>

#include "trireme/base/rounding.h"

namespace trireme {
namespace {

constexpr std::int64_t kSmallGap = std::int64_t{64} << 10;  // bytes; cheaper to read than to skip
constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kLargestElement = 8;  // bytes

}  // namespace

ReadPlan::ReadPlan(std::vector<const CheckpointTensor*> tensors, const ReadWorld& world,
                   const ReadLimits& limits)
    : world_(world), tensors_(std::move(tensors)) {
  std::erase_if(tensors_, [](const CheckpointTensor* tensor) { return tensor->bytes() == 0; });
  std::sort(tensors_.begin(), tensors_.end(),
            [](const auto* a, const auto* b) { return a->offset < b->offset; });
  for (const CheckpointTensor* tensor : tensors_) {
    const std::int64_t last =
        stretches_.empty() ? 0 : stretches_.back().offset + stretches_.back().bytes;
    if (stretches_.empty() || tensor->offset - last > kSmallGap) {
      stretches_.push_back({tensor->offset, 0, bytes_});
    }
    Stretch& stretch = stretches_.back();
    stretch.bytes = tensor->offset + tensor->bytes() - stretch.offset;
    bytes_ = stretch.before + stretch.bytes;
    places_.push_back(stretch.before + tensor->offset - stretch.offset);
  }
  const std::int64_t all = std::int64_t{world_.replicas} * world_.ranks;
  const std::int64_t longest = std::min(limits.longest_run, limits.round / world_.replicas);
  run_bytes_ = std::max(limits.shortest_run, std::min(longest, quotient_up(bytes_, all)));
  run_bytes_ = rounded_up(run_bytes_, kPage);
  const std::int64_t round_bytes = run_bytes_ * world_.replicas;
  rounds_ = quotient_up(bytes_, round_bytes);
}

ReadPlan::Run ReadPlan::run(std::int64_t round, int replica) const {
  const std::int64_t begin = (round * world_.replicas + replica) * run_bytes_;
  const std::int64_t end = std::min(begin + run_bytes_, bytes_);
  Run run;
  if (begin >= end) return run;
  for (const Stretch& stretch : stretches_) {
    const std::int64_t from = std::max(begin, stretch.before);
    if (from >= end) break;
    // The last element may end after the end of the run.
    const std::int64_t to = std::min(end + kLargestElement - 1, stretch.before + stretch.bytes);
    if (from >= to || from >= stretch.before + stretch.bytes) continue;
    run.reads.push_back({stretch.offset + from - stretch.before, to - from, from - begin});
    run.bytes = to - begin;
  }
  const auto after = std::upper_bound(places_.begin(), places_.end(), begin) - places_.begin();
  for (auto i = static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - 1, 0));
       i < places_.size() && places_[i] < end; ++i) {
    const auto size = static_cast<std::int64_t>(size_of(tensors_[i]->dtype));
    const std::int64_t elements = tensors_[i]->shape.elements();
    const auto first_from = [&](std::int64_t place) {
      return std::clamp<std::int64_t>((place - places_[i] + size - 1) / size, 0, elements);
    };
    const std::int64_t first = begin > places_[i] ? first_from(begin) : 0;
    const std::int64_t last = first_from(end);
    if (first >= last) continue;
    run.parts.push_back({i, {first, last}, places_[i] + first * size - begin});
  }
  return run;
}

bool ReadPlan::is_read(std::size_t tensor, std::int64_t round) const {
  const std::int64_t end = (round + 1) * world_.replicas * run_bytes_;
  return places_[tensor] + tensors_[tensor]->bytes() <= end;
}

}  // namespace trireme

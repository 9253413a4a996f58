#include "fair_share.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr double kPartOfByte = 1e-6;  // that much less is as good as arrived
constexpr double kNoRate = -1.0;      // it still grows

// Vectors are indexed by numbers of links.
template <class T>
T& at(std::vector<T>& vector, int link) {
  return vector[static_cast<std::size_t>(link)];
}

}  // namespace

FairShare::FairShare(std::vector<double> capacities)
    : capacities_(std::move(capacities)),
      on_(capacities_.size()),
      changes_(capacities_.size()),
      left_(capacities_),
      offered_(capacities_),
      growing_(capacities_.size()),
      first_of_link_(capacities_.size()) {}

void FairShare::change(int link, int by) {
  at(on_, link) += by;
  if (at(changes_, link) == 0) changed_.push_back(link);
  if (++at(changes_, link) * kFinest > at(on_, link)) is_due_ = true;
}

void FairShare::begin(double now, void* what, const std::vector<int>& links, double bytes,
                      double most) {
  const std::size_t first = routes_.size();
  routes_.insert(routes_.end(), links.begin(), links.end());
  double rate = std::min(most, std::numeric_limits<double>::max());
  for (const int link : links) {
    rate = std::min(rate, at(offered_, link));
    change(link, 1);
  }
  ends_.push_back({now + bytes / rate, flows_.size()});
  std::ranges::push_heap(ends_, std::greater<>());
  flows_.push_back({.what = what,
                    .end = now + bytes / rate,
                    .rate = rate,
                    .most = most,
                    .remaining = bytes,
                    .first_link = first,
                    .last_link = routes_.size()});
}

double FairShare::next_end() const {
  return ends_.empty() ? std::numeric_limits<double>::infinity() : ends_.front().time;
}

std::vector<void*> FairShare::take_ended(double now, double rounding) {
  std::vector<std::size_t> ended;
  while (!ends_.empty()) {
    const Flow& flow = flows_[ends_.front().flow];
    if (flow.end > now + rounding + kPartOfByte / flow.rate) break;
    ended.push_back(ends_.front().flow);
    std::ranges::pop_heap(ends_, std::greater<>());
    ends_.pop_back();
  }
  std::ranges::sort(ended);
  std::vector<void*> result;
  for (const std::size_t i : ended) {
    Flow& flow = flows_[i];
    result.push_back(std::exchange(flow.what, nullptr));
    for (std::size_t k = flow.first_link; k < flow.last_link; ++k) change(routes_[k], -1);
  }
  return result;
}

double FairShare::rate_of(const void* what) const {
  const auto flow = std::ranges::find(flows_, what, &Flow::what);
  TRIREME_CHECK(flow != flows_.end(), "no such message is under way");
  return flow->rate;
}

void FairShare::settle(double now) {
  if (!is_due_) return;
  is_due_ = false;
  for (const int link : changed_) at(changes_, link) = 0;
  changed_.clear();
  for (const int link : used_) at(offered_, link) = at(capacities_, link);
  used_.clear();
  drop_ended(now);
  list_by_link();
  fill();
  ends_.clear();
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    flows_[i].end = now + flows_[i].remaining / flows_[i].rate;
    ends_.push_back({flows_[i].end, i});
  }
  std::ranges::make_heap(ends_, std::greater<>());
}

void FairShare::drop_ended(double now) {
  std::size_t kept = 0, links = 0;
  for (const Flow& flow : flows_) {
    if (flow.what == nullptr) continue;
    const std::size_t first = links;
    for (std::size_t k = flow.first_link; k < flow.last_link; ++k) {
      const int link = routes_[k];
      routes_[links++] = link;
      if (at(growing_, link)++ == 0) used_.push_back(link);
    }
    flows_[kept++] = {.what = flow.what,
                      .end = flow.end,
                      .rate = kNoRate,
                      .most = flow.most,
                      .remaining = std::max(flow.end - now, 0.0) * flow.rate,
                      .first_link = first,
                      .last_link = links};
  }
  flows_.resize(kept);
  routes_.resize(links);
}

void FairShare::list_by_link() {
  std::size_t end = 0;
  for (const int link : used_) {
    end += static_cast<std::size_t>(at(growing_, link));
    at(first_of_link_, link) = end;  // filled from behind
  }
  by_link_.resize(end);
  for (std::size_t i = flows_.size(); i-- > 0;) {
    for (std::size_t k = flows_[i].first_link; k < flows_[i].last_link; ++k) {
      by_link_[--at(first_of_link_, routes_[k])] = static_cast<std::uint32_t>(i);
    }
  }
}

// The flows that have a highest rate, the slowest first.
std::vector<std::uint32_t> FairShare::by_most() const {
  std::vector<std::uint32_t> sorted;
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    if (flows_[i].most < std::numeric_limits<double>::infinity()) {
      sorted.push_back(static_cast<std::uint32_t>(i));
    }
  }
  std::ranges::stable_sort(sorted, {}, [this](std::uint32_t i) { return flows_[i].most; });
  return sorted;
}

void FairShare::fix(Flow& flow, double rate) {
  flow.rate = rate;
  for (std::size_t k = flow.first_link; k < flow.last_link; ++k) {
    at(left_, routes_[k]) -= rate;
    --at(growing_, routes_[k]);
  }
}

// A link's share never falls while others fill up. So the next full link is the one whose share is
// the smallest, if it is still the share that the queue says.
void FairShare::fill() {
  std::priority_queue<Full, std::vector<Full>, std::greater<>> next;
  for (const int link : used_) {
    at(left_, link) = at(capacities_, link);
    next.push({at(capacities_, link) / at(growing_, link), link});
  }
  const std::vector<std::uint32_t> limited = by_most();
  auto slowest = limited.begin();
  while (!next.empty()) {
    const auto [queued, link] = next.top();
    while (slowest != limited.end() && flows_[*slowest].most <= queued) {
      Flow& flow = flows_[*slowest++];
      if (flow.rate == kNoRate) fix(flow, flow.most);
    }
    next.pop();
    const int growing = at(growing_, link);
    if (growing == 0) {
      at(offered_, link) = std::max(at(left_, link), queued);
      continue;
    }
    const double share = std::max(at(left_, link), 0.0) / growing;
    if (share > queued * (1 + 1e-12)) {
      next.push({share, link});
      continue;
    }
    at(offered_, link) = share;
    const std::size_t first = at(first_of_link_, link);
    for (std::size_t k = first; k < first + static_cast<std::size_t>(at(on_, link)); ++k) {
      Flow& flow = flows_[by_link_[k]];
      if (flow.rate == kNoRate) fix(flow, share);
    }
  }
}

}  // namespace trireme

#include "topology/simulation/fair_share.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr double kPartOfByte = 1e-6;  // that much less is as good as arrived
constexpr double kNoRate = -1.0;      // it still grows
constexpr double kSameRate = 1e-12;   // relative: rounding

// Vectors are indexed by numbers of links.
template <class T>
auto& at(std::vector<T>& vector, int link) {
  return vector[static_cast<std::size_t>(link)];
}

// The share of a link whose messages take at most `limits`: what each gets that takes all it can,
// or more than any takes if the link is not full.
double share_of(double capacity, const std::vector<double>& limits) {
  double rest = capacity, share = 0.0, most = 0.0;
  std::size_t growing = limits.size();
  while (growing > 0) {
    const double last = share;
    share = rest / static_cast<double>(growing);
    const std::size_t before = growing;
    for (const double limit : limits) {
      if (limit < last || limit >= share) continue;
      rest -= limit;
      most = std::max(most, limit);
      --growing;
    }
    if (growing == before) return share;
  }
  return std::max(rest, 0.0) + most;
}

}  // namespace

FairShare::FairShare(std::vector<double> capacities)
    : capacities_(std::move(capacities)),
      on_(capacities_.size()),
      changes_(capacities_.size()),
      is_due_(capacities_.size()),
      share_(capacities_),
      left_(capacities_),
      growing_(capacities_.size()) {}

void FairShare::change(int link, double rate) {
  const std::size_t messages = std::max<std::size_t>(at(on_, link).size(), 1);
  const bool many = messages >= kFinest;
  double& changed = at(changes_, link);
  changed += std::min(rate, at(capacities_, link) / static_cast<double>(messages));
  if (is_due_[static_cast<std::size_t>(link)]) return;
  if (changed * (many ? kFinest : kExact) <= at(capacities_, link)) return;
  is_due_[static_cast<std::size_t>(link)] = true;
  due_.push_back(link);
}

// Makes room for routes of so many links.
void FairShare::make_room(std::size_t links) {
  if (links <= longest_) return;
  std::vector<Place> places(flows_.size() * links);
  for (std::size_t i = 0; i < flows_.size(); ++i) {
    std::ranges::copy(places_of(static_cast<FlowIndex>(i)),
                      places.begin() + static_cast<std::ptrdiff_t>(i * links));
  }
  places_ = std::move(places);
  longest_ = links;
}

void FairShare::begin(double now, void* what, const std::vector<int>& links, double bytes,
                      double most) {
  make_room(links.size());
  if (free_.empty()) {
    free_.push_back(static_cast<FlowIndex>(flows_.size()));
    flows_.emplace_back();
    places_.resize(flows_.size() * longest_);
  }
  const FlowIndex index = free_.back();
  free_.pop_back();
  Flow& flow = flows_[index];
  flow.what = what;
  flow.most = most;
  flow.number = next_number_++;
  flow.links = static_cast<std::uint32_t>(links.size());
  flow.rate = std::min(most, std::numeric_limits<double>::max());
  for (const int link : links) flow.rate = std::min(flow.rate, at(share_, link));
  const std::span<Place> places = places_of(index);
  for (std::size_t i = 0; i < links.size(); ++i) {
    std::vector<FlowIndex>& on = at(on_, links[i]);
    places[i] = {links[i], static_cast<std::uint32_t>(on.size())};
    on.push_back(index);
    change(links[i], flow.rate);
  }
  flow.end = now + bytes / flow.rate;
  queue_.emplace_back();
  rise(queue_.size() - 1, {flow.end, index});
}

void FairShare::remove(FlowIndex index) {
  Flow& flow = flows_[index];
  for (const auto& [link, place] : places_of(index)) {
    std::vector<FlowIndex>& on = at(on_, link);
    const FlowIndex last = on.back();
    on[place] = last;
    on.pop_back();
    if (last != index) std::ranges::find(places_of(last), link, &Place::link)->index = place;
    change(link, flow.rate);
    if (on.empty()) at(share_, link) = at(capacities_, link);
  }
  flow.what = nullptr;
  free_.push_back(index);
}

double FairShare::next_end() {
  update_first();
  return queue_.empty() ? std::numeric_limits<double>::infinity() : queue_.front().time;
}

std::vector<void*> FairShare::take_ended(double now, double rounding) {
  std::vector<FlowIndex> ended;
  for (update_first(); !queue_.empty(); update_first()) {
    const FlowIndex index = queue_.front().flow;
    const Flow& flow = flows_[index];
    if (flow.end > now + rounding + kPartOfByte / flow.rate) break;
    ended.push_back(index);
    const End last = queue_.back();
    queue_.pop_back();
    if (!queue_.empty()) sink(0, last);
  }
  std::ranges::sort(ended, {}, [this](FlowIndex index) { return flows_[index].number; });
  std::vector<void*> result;
  for (const FlowIndex index : ended) {
    result.push_back(flows_[index].what);
    remove(index);
  }
  return result;
}

double FairShare::rate_of(const void* what) const {
  const auto flow = std::ranges::find(flows_, what, &Flow::what);
  TRIREME_CHECK(flow != flows_.end(), "no such message is under way");
  return flow->rate;
}

// Links are looked at in the order in which they changed. With each, shares come closer to the fair
// ones (A. Charny, D. Clark, R. Jain, Congestion control with explicit rate indication, 1995).
void FairShare::settle(double now) {
  constexpr std::size_t kFew = 4;
  std::size_t visits = 0;
  for (const int link : due_) visits += at(on_, link).size();
  bool few = visits * kFew <= queue_.size();
  // Where links change alike, setting all rates at once costs less than one link after the other.
  for (std::size_t i = 0; few && i < due_.size(); ++i) {  // due_ grows meanwhile
    visits_ += share_link(now, due_[i]);
    few = visits_ <= queue_.size();
  }
  if (!few) {
    visits_ = 0;
    share_all(now);
  }
  due_.clear();
}

std::size_t FairShare::share_link(double now, int link) {
  const std::vector<FlowIndex>& on = at(on_, link);
  work_ += on.size();
  limits_.clear();
  for (const FlowIndex index : on) {
    const Flow& flow = flows_[index];
    double limit = flow.most;
    for (const Place& place : places_of(index)) {
      if (place.link != link) limit = std::min(limit, at(share_, place.link));
    }
    limits_.push_back(limit);
  }
  const double share = share_of(at(capacities_, link), limits_);
  at(share_, link) = share;
  at(changes_, link) = 0.0;
  is_due_[static_cast<std::size_t>(link)] = false;
  for (std::size_t i = 0; i < on.size(); ++i) {
    const Flow& flow = flows_[on[i]];
    const double rate = std::min(limits_[i], share), change_by = std::abs(rate - flow.rate);
    if (change_by <= kSameRate * flow.rate) continue;
    for (const Place& place : places_of(on[i])) {
      if (place.link != link) change(place.link, change_by);
    }
    set_rate(now, on[i], rate);
  }
  return on.size();
}

void FairShare::share_all(double now) {
  for (const int link : due_) {
    at(share_, link) = at(capacities_, link);
    at(changes_, link) = 0.0;
    is_due_[static_cast<std::size_t>(link)] = false;
  }
  used_.clear();
  rates_.resize(flows_.size());
  const auto flows = static_cast<FlowIndex>(flows_.size());
  for (FlowIndex i = 0; i < flows; ++i) {
    if (flows_[i].what == nullptr) continue;
    rates_[i] = std::exchange(flows_[i].rate, kNoRate);
    for (const Place& place : places_of(i)) {
      if (at(growing_, place.link)++ == 0) used_.push_back(place.link);
    }
  }
  work_ += queue_.size();
  fill();
  queue_.clear();
  for (FlowIndex i = 0; i < flows; ++i) {
    Flow& flow = flows_[i];
    if (flow.what == nullptr) continue;
    flow.end = now + std::max(flow.end - now, 0.0) * rates_[i] / flow.rate;
    queue_.push_back({flow.end, i});
  }
  std::ranges::make_heap(queue_, std::greater<>(), &End::time);
  for (std::size_t i = 0; i < queue_.size(); ++i) flows_[queue_[i].flow].queued = i;
}

// The flows that have a highest rate, the slowest first.
std::vector<FairShare::FlowIndex> FairShare::by_most() const {
  std::vector<FlowIndex> sorted;
  for (const End& end : queue_) {
    if (flows_[end.flow].most < std::numeric_limits<double>::infinity()) sorted.push_back(end.flow);
  }
  std::ranges::sort(sorted, {}, [this](FlowIndex i) { return flows_[i].most; });
  return sorted;
}

void FairShare::fix(FlowIndex flow, double rate) {
  flows_[flow].rate = rate;
  for (const Place& place : places_of(flow)) {
    at(left_, place.link) -= rate;
    --at(growing_, place.link);
  }
}

// A link's share never falls while others fill up. So the next full link is the one whose share is
// the smallest, if it is still the share that the queue says.
void FairShare::fill() {
  std::priority_queue<Full, std::vector<Full>, std::greater<>> next;
  for (const int link : used_) {
    at(left_, link) = at(capacities_, link);
    at(changes_, link) = 0.0;
    next.push({at(capacities_, link) / at(growing_, link), link});
  }
  const std::vector<FlowIndex> limited = by_most();
  auto slowest = limited.begin();
  while (!next.empty()) {
    const auto [queued, link] = next.top();
    while (slowest != limited.end() && flows_[*slowest].most <= queued) {
      const Flow& flow = flows_[*slowest];
      if (flow.rate == kNoRate) fix(*slowest, flow.most);
      ++slowest;
    }
    next.pop();
    const int growing = at(growing_, link);
    if (growing == 0) {
      at(share_, link) = std::max(at(left_, link), queued);
      continue;
    }
    const double share = std::max(at(left_, link), 0.0) / growing;
    if (share > queued * (1 + 1e-12)) {
      next.push({share, link});
      continue;
    }
    at(share_, link) = share;
    for (const FlowIndex index : at(on_, link)) {
      if (flows_[index].rate == kNoRate) fix(index, share);
    }
  }
}

// An end that moves back stays where it is in the queue until it is the first.
void FairShare::set_rate(double now, FlowIndex index, double rate) {
  Flow& flow = flows_[index];
  const double end = now + std::max(flow.end - now, 0.0) * flow.rate / rate;
  flow.rate = rate;
  flow.end = end;
  if (end < queue_[flow.queued].time) rise(flow.queued, {end, index});
}

void FairShare::put(std::size_t index, const End& end) {
  queue_[index] = end;
  flows_[end.flow].queued = index;
}

void FairShare::rise(std::size_t index, const End& end) {
  while (index > 0 && end.time < queue_[(index - 1) / 2].time) {
    put(index, queue_[(index - 1) / 2]);
    index = (index - 1) / 2;
  }
  put(index, end);
}

void FairShare::sink(std::size_t index, const End& end) {
  for (;;) {
    std::size_t below = 2 * index + 1;
    if (below >= queue_.size()) break;
    if (below + 1 < queue_.size() && queue_[below + 1].time < queue_[below].time) ++below;
    if (end.time <= queue_[below].time) break;
    put(index, queue_[below]);
    index = below;
  }
  put(index, end);
}

void FairShare::update_first() {
  while (!queue_.empty()) {
    const FlowIndex index = queue_.front().flow;
    if (flows_[index].end <= queue_.front().time) return;
    sink(0, {flows_[index].end, index});
  }
}

}  // namespace trireme

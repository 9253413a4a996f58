#include "comm/collectives/tier_plan.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>

#include "trireme/comm/sum_blocks.h"

namespace trireme {
namespace {

constexpr std::size_t kMostSplit = 4;

// Replaces neighbouring subtrees that are the halves of a larger one by that one.
std::vector<Subtree> merged(std::vector<Subtree> subtrees) {
  std::ranges::sort(subtrees, {}, &Subtree::order);
  std::vector<Subtree> result;
  for (const Subtree& next : subtrees) {
    result.push_back(next);
    while (result.size() >= 2) {
      const Subtree right = result.back(), left = result[result.size() - 2];
      if (left.level != right.level || left.index % 2 != 0 || right.index != left.index + 1) break;
      result.resize(result.size() - 2);
      result.push_back({left.level + 1, left.index / 2});
    }
  }
  return result;
}

}  // namespace

TierPlan::TierPlan(const RankBlocks* blocks, int ranks) : TierPlan(blocks, ranks, nullptr) {
  if (blocks == nullptr) return;
  const RankBlocks of_sums = blocks_of_sums(*blocks);
  if (of_sums != *blocks) sums_.reset(new TierPlan(&of_sums, ranks, this));
}

TierPlan::TierPlan(const RankBlocks* blocks, int ranks, const TierPlan* whole)
    : ranks_(ranks), tree_(ranks), whole_(whole) {
  int below = ranks;  // blocks of the tier below
  const auto add = [&](const std::vector<int>& of_rank, int count) {
    std::vector<std::vector<int>> children(static_cast<std::size_t>(count));
    std::vector<bool> seen(static_cast<std::size_t>(below));
    for (int rank = 0; rank < ranks; ++rank) {
      const int child = block_of_.empty() ? rank : block_of_.back()[static_cast<std::size_t>(rank)];
      if (seen[static_cast<std::size_t>(child)]) continue;
      seen[static_cast<std::size_t>(child)] = true;
      children[static_cast<std::size_t>(of_rank[static_cast<std::size_t>(rank)])].push_back(child);
    }
    children_.push_back(std::move(children));
    block_of_.push_back(of_rank);
    below = count;
  };
  std::vector<int> of_rank(static_cast<std::size_t>(ranks));
  for (int tier = 0; blocks != nullptr && tier < blocks->tiers(); ++tier) {
    const int count = blocks->blocks(tier);
    if (count == below || count == 1) continue;
    for (int rank = 0; rank < ranks; ++rank) {
      of_rank[static_cast<std::size_t>(rank)] = blocks->block(tier, rank);
    }
    add(of_rank, count);
  }
  std::ranges::fill(of_rank, 0);
  add(of_rank, 1);

  std::vector<std::vector<Subtree>> of_blocks;
  for (int rank = 0; rank < ranks; ++rank) {
    of_blocks.push_back(
        {tree_.is_paired(rank) ? Subtree{-1, rank} : Subtree{0, tree_.term_of(rank)}});
  }
  for (int tier = 0;; ++tier) {
    subtrees_.push_back(std::move(of_blocks));
    if (tier == hops()) break;
    of_blocks.clear();
    for (const auto& blocks_below : children_[static_cast<std::size_t>(tier)]) {
      std::vector<Subtree> all;
      for (const int child : blocks_below) {
        const std::vector<Subtree>& some = subtrees(tier, child);
        all.insert(all.end(), some.begin(), some.end());
      }
      of_blocks.push_back(merged(std::move(all)));
    }
  }
  for (int tier = 0; tier <= hops(); ++tier) {
    std::vector<int>& sizes = sizes_.emplace_back(subtrees_[static_cast<std::size_t>(tier)].size());
    for (int rank = 0; rank < ranks; ++rank) ++sizes[static_cast<std::size_t>(block(tier, rank))];
  }
}

int TierPlan::block(int tier, int rank) const {
  if (tier == 0) return rank;
  return block_of_[static_cast<std::size_t>(tier - 1)][static_cast<std::size_t>(rank)];
}

int TierPlan::representative(int tier, int block, const TierPart& part) const {
  if (part.owner >= 0 && holds(tier, block, part.owner)) return part.owner;
  if (whole_ != nullptr) {  // the block is one of the whole plan, of the same tier or a lower one
    int any = block;        // one of its ranks
    for (int below = tier; below > 0; --below) any = children(below, any).front();
    int whole_tier = 0;
    while (whole_->size(whole_tier, whole_->block(whole_tier, any)) < size(tier, block))
      ++whole_tier;
    return whole_->representative(whole_tier, whole_->block(whole_tier, any), part);
  }
  while (tier > 0) {
    const std::vector<int>& below = children(tier, block);
    const auto [number, count] = part.digits[static_cast<std::size_t>(tier - 1)];
    block =
        below[static_cast<std::size_t>(number) * below.size() / static_cast<std::size_t>(count)];
    --tier;
  }
  return block;
}

TierPart TierPlan::part_of_owner(int owner) const {
  TierPart part{.digits = {}, .owner = owner};
  for (int hop = 0; hop < hops(); ++hop) {
    const std::vector<int>& siblings = children(hop + 1, block(hop + 1, owner));
    const auto own = std::ranges::find(siblings, block(hop, owner));
    part.digits.push_back(
        {static_cast<int>(own - siblings.begin()), static_cast<int>(siblings.size())});
  }
  return part;
}

TierParts TierPlan::part_per_rank() const {
  const std::lock_guard lock(mutex_);
  if (!per_rank_) {
    std::vector<TierPart> parts;
    for (int rank = 0; rank < ranks_; ++rank) parts.push_back(part_of_owner(rank));
    per_rank_ = std::make_shared<const std::vector<TierPart>>(std::move(parts));
  }
  return per_rank_;
}

TierParts TierPlan::parts_in_order(std::size_t partial, std::size_t element) const {
  const std::lock_guard lock(mutex_);
  TierParts& parts = in_order_[{partial, element}];
  if (!parts) {
    parts = std::make_shared<const std::vector<TierPart>>(make_parts_in_order(partial, element));
  }
  return parts;
}

std::vector<TierPart> TierPlan::make_parts_in_order(std::size_t partial,
                                                    std::size_t element) const {
  // A hop has as many numbers as divide the blocks of each parent evenly, as long as that makes at
  // most kMostSplit times as many parts as the fullest blocks need.
  std::vector<std::size_t> counts;
  std::size_t split = 1;
  const std::vector<int> owning = owning_blocks(partial, element);
  for (int hop = 0; hop < hops(); ++hop) {
    std::size_t common = 1, most = 1;
    for (const auto& below : children_[static_cast<std::size_t>(hop)]) {
      const std::size_t size = hop + 1 == hops() ? owning.size() : below.size();
      common = std::min(std::lcm(common, size), std::size_t{1} << 20);
      most = std::max(most, size);
    }
    const bool fits = split * common <= kMostSplit * most;
    counts.push_back(fits ? common : most);
    if (fits) split *= common / most;
  }
  const std::size_t all =
      std::accumulate(counts.begin(), counts.end(), std::size_t{1}, std::multiplies<>());
  std::vector<TierPart> parts;
  for (std::size_t number = 0; number < all; ++number) {
    TierPart part{.digits = {}, .owner = -1};
    std::size_t rest = number, below = all;
    for (const std::size_t count : counts) {  // the lowest hop is the most significant
      below /= count;
      part.digits.push_back({static_cast<int>(rest / below), static_cast<int>(count)});
      rest %= below;
    }
    const auto [digit, count] = part.digits.back();
    const int top =
        owning[static_cast<std::size_t>(digit) * owning.size() / static_cast<std::size_t>(count)];
    part.owner = representative(hops() - 1, top, part);
    parts.push_back(std::move(part));
  }
  return parts;
}

// Compares the links above the blocks of the second highest tier, if they all have the same rate.
// A block sends the partial results of what others own and the results of what it owns.
std::vector<int> TierPlan::owning_blocks(std::size_t partial, std::size_t element) const {
  const std::vector<int>& all = children(hops(), 0);
  if (hops() == 1) return all;
  std::vector<double> gives;
  for (const int block : all) {
    double bytes = 0.0;
    for (const Subtree& subtree : subtrees(hops() - 1, block)) {
      bytes += static_cast<double>(subtree.is_single(tree_) ? element : partial);
    }
    gives.push_back(bytes);
  }
  const double of_all = std::accumulate(gives.begin(), gives.end(), 0.0);
  const auto load = [&](const std::vector<int>& owning) {
    double worst = 0.0;
    const double share = 1.0 / static_cast<double>(owning.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double owned = std::ranges::count(owning, all[i]) > 0 ? share : 0.0;
      const double result = static_cast<double>(element);
      const double out =
          gives[i] * (1 - owned) + result * owned * static_cast<double>(all.size() - 1);
      const double in = (of_all - gives[i]) * owned + result * (1 - owned);
      worst = std::max({worst, out, in});
    }
    return worst;
  };
  const double most = std::ranges::max(gives);
  std::vector<int> some;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (gives[i] == most) some.push_back(all[i]);
  }
  return load(some) < load(all) ? some : all;
}

std::shared_ptr<const TierPlan> tier_plan_of(const std::shared_ptr<const RankBlocks>& blocks,
                                             int ranks) {
  if (!blocks) return std::make_shared<const TierPlan>(nullptr, ranks);
  // Tasks begin on several threads, and every communicator has blocks of its own.
  static std::mutex mutex;
  static std::map<std::weak_ptr<const RankBlocks>, std::shared_ptr<const TierPlan>,
                  std::owner_less<>>
      plans;
  const std::lock_guard lock(mutex);
  std::erase_if(plans, [](const auto& entry) { return entry.first.expired(); });
  std::shared_ptr<const TierPlan>& plan = plans[blocks];
  if (!plan) plan = std::make_shared<const TierPlan>(blocks.get(), ranks);
  return plan;
}

}  // namespace trireme

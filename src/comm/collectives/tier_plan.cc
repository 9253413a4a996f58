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

// The block that a digit of a part chooses.
int chosen(const std::vector<int>& blocks, const TierPart::Digit& digit) {
  return blocks[static_cast<std::size_t>(digit.number) * blocks.size() /
                static_cast<std::size_t>(digit.count)];
}

// The digits of a number, of which that of the lowest hop is the most significant.
std::vector<TierPart::Digit> digits_of(std::size_t number, const std::vector<std::size_t>& counts) {
  std::vector<TierPart::Digit> digits(counts.size());
  for (std::size_t hop = counts.size(); hop-- > 0;) {
    digits[hop] = {static_cast<int>(number % counts[hop]), static_cast<int>(counts[hop])};
    number /= counts[hop];
  }
  return digits;
}

// The links above the blocks of the second highest tier.
struct TopLinks {
  std::vector<double> gives;  // by block: bytes of its partial results of everything
  double result;              // bytes of a result

  // Returns what the fullest link carries where these blocks own equal shares of everything. A
  // block sends the partial results of what others own and the results of what it owns.
  double load(const std::vector<bool>& owns) const {
    const double of_all = std::accumulate(gives.begin(), gives.end(), 0.0);
    const double share = 1.0 / static_cast<double>(std::ranges::count(owns, true));
    double worst = 0.0;
    for (std::size_t i = 0; i < gives.size(); ++i) {
      const double owned = owns[i] ? share : 0.0;
      const double out =
          gives[i] * (1 - owned) + result * owned * static_cast<double>(gives.size() - 1);
      const double in = (of_all - gives[i]) * owned + result * (1 - owned);
      worst = std::max({worst, out, in});
    }
    return worst;
  }
};

}  // namespace

TierPlan::TierPlan(const RankBlocks* blocks, int ranks) : TierPlan(blocks, ranks, nullptr) {
  if (blocks == nullptr) return;
  const RankBlocks of_sums = blocks_of_sums(*blocks);
  if (of_sums != *blocks) sums_.reset(new TierPlan(&of_sums, ranks, this));
}

TierPlan::TierPlan(const RankBlocks* blocks, int ranks, const TierPlan* whole)
    : ranks_(ranks), tree_(ranks), whole_(whole) {
  add_tiers(blocks);
  find_subtrees();
  count_ranks();
}

// Adds the tiers that divide the ranks in a way of their own, then the block of all.
void TierPlan::add_tiers(const RankBlocks* blocks) {
  int below = ranks_;  // blocks of the tier below
  std::vector<int> of_rank(static_cast<std::size_t>(ranks_));
  for (int tier = 0; blocks != nullptr && tier < blocks->tiers(); ++tier) {
    const int count = blocks->blocks(tier);
    if (count == below || count == 1) continue;
    for (int rank = 0; rank < ranks_; ++rank) {
      of_rank[static_cast<std::size_t>(rank)] = blocks->block(tier, rank);
    }
    add_tier(of_rank, count);
    below = count;
  }
  std::ranges::fill(of_rank, 0);
  add_tier(std::move(of_rank), 1);
}

// Adds a tier of `count` blocks, given the block of each rank.
void TierPlan::add_tier(std::vector<int> of_rank, int count) {
  const int below = hops();  // the tier below
  std::vector<std::vector<int>> children(static_cast<std::size_t>(count));
  std::vector<bool> seen(static_cast<std::size_t>(ranks_));  // by block below
  for (int rank = 0; rank < ranks_; ++rank) {
    const int child = block(below, rank);
    if (seen[static_cast<std::size_t>(child)]) continue;
    seen[static_cast<std::size_t>(child)] = true;
    children[static_cast<std::size_t>(of_rank[static_cast<std::size_t>(rank)])].push_back(child);
  }
  children_.push_back(std::move(children));
  block_of_.push_back(std::move(of_rank));
}

void TierPlan::find_subtrees() {
  std::vector<std::vector<Subtree>>& single = subtrees_.emplace_back();
  for (int rank = 0; rank < ranks_; ++rank) {
    single.push_back({tree_.is_paired(rank) ? Subtree{-1, rank} : Subtree{0, tree_.term_of(rank)}});
  }
  for (int tier = 1; tier <= hops(); ++tier) {
    std::vector<std::vector<Subtree>> of_blocks;
    for (const auto& blocks_below : children_[static_cast<std::size_t>(tier - 1)]) {
      std::vector<Subtree> all;
      for (const int child : blocks_below) {
        const std::vector<Subtree>& some = subtrees(tier - 1, child);
        all.insert(all.end(), some.begin(), some.end());
      }
      of_blocks.push_back(merged(std::move(all)));
    }
    subtrees_.push_back(std::move(of_blocks));
  }
}

void TierPlan::count_ranks() {
  for (int tier = 0; tier <= hops(); ++tier) {
    std::vector<int>& sizes = sizes_.emplace_back(subtrees_[static_cast<std::size_t>(tier)].size());
    for (int rank = 0; rank < ranks_; ++rank) ++sizes[static_cast<std::size_t>(block(tier, rank))];
  }
}

int TierPlan::block(int tier, int rank) const {
  if (tier == 0) return rank;
  return block_of_[static_cast<std::size_t>(tier - 1)][static_cast<std::size_t>(rank)];
}

int TierPlan::representative(int tier, int block, const TierPart& part) const {
  if (part.owner >= 0 && holds(tier, block, part.owner)) return part.owner;
  if (whole_ != nullptr) {
    const auto [whole_tier, whole_block] = same_block_of_whole(tier, block);
    return whole_->representative(whole_tier, whole_block, part);
  }
  for (; tier > 0; --tier) {
    block = chosen(children(tier, block), part.digits[static_cast<std::size_t>(tier - 1)]);
  }
  return block;
}

// Returns the tier and the block of the whole plan that has the ranks of a block here. The tier is
// the same or a lower one.
std::pair<int, int> TierPlan::same_block_of_whole(int tier, int block) const {
  int rank = block;  // one of its ranks
  for (int below = tier; below > 0; --below) rank = children(below, rank).front();
  int whole_tier = 0;
  while (whole_->size(whole_tier, whole_->block(whole_tier, rank)) < size(tier, block)) {
    ++whole_tier;
  }
  return {whole_tier, whole_->block(whole_tier, rank)};
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
  const std::vector<int> owning = owning_blocks(partial, element);
  const std::vector<std::size_t> counts = numbers_of_hops(owning.size());
  const std::size_t all =
      std::accumulate(counts.begin(), counts.end(), std::size_t{1}, std::multiplies<>());
  std::vector<TierPart> parts;
  for (std::size_t number = 0; number < all; ++number) {
    TierPart part{.digits = digits_of(number, counts), .owner = -1};
    part.owner = representative(hops() - 1, chosen(owning, part.digits.back()), part);
    parts.push_back(std::move(part));
  }
  return parts;
}

// Returns into how many numbers each hop divides the parts, where `owning` blocks below the highest
// tier own some: as many as divide the blocks of each parent evenly, as long as that makes at most
// kMostSplit times as many parts as the fullest blocks need.
std::vector<std::size_t> TierPlan::numbers_of_hops(std::size_t owning) const {
  std::vector<std::size_t> counts;
  std::size_t split = 1;
  for (int hop = 0; hop < hops(); ++hop) {
    std::size_t common = 1, most = 1;
    for (const auto& below : children_[static_cast<std::size_t>(hop)]) {
      const std::size_t size = hop + 1 == hops() ? owning : below.size();
      common = std::min(std::lcm(common, size), std::size_t{1} << 20);
      most = std::max(most, size);
    }
    const bool fits = split * common <= kMostSplit * most;
    counts.push_back(fits ? common : most);
    if (fits) split *= common / most;
  }
  return counts;
}

// Compares the links above the blocks of the second highest tier, if they all have the same rate.
std::vector<int> TierPlan::owning_blocks(std::size_t partial, std::size_t element) const {
  const std::vector<int>& all = children(hops(), 0);
  if (hops() == 1) return all;
  TopLinks links{.gives = {}, .result = static_cast<double>(element)};
  for (const int block : all) {
    double bytes = 0.0;
    for (const Subtree& subtree : subtrees(hops() - 1, block)) {
      bytes += static_cast<double>(subtree.is_single(tree_) ? element : partial);
    }
    links.gives.push_back(bytes);
  }
  const double most = std::ranges::max(links.gives);
  std::vector<bool> gives_most;
  std::vector<int> some;
  for (std::size_t i = 0; i < all.size(); ++i) {
    gives_most.push_back(links.gives[i] == most);
    if (gives_most.back()) some.push_back(all[i]);
  }
  return links.load(gives_most) < links.load(std::vector(all.size(), true)) ? some : all;
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

#include "trireme/parallel/copy_check.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/tensor_checksum.h"
#include "trireme/parallel/host_pieces.h"

namespace trireme::parallel {
namespace {

constexpr std::size_t kMostListed = 8;

// A checksum that all ranks that hold the same values must agree on.
struct Held {
  std::string what;                    // "the weights of blocks.0.norm1.weight"
  std::vector<Communicator*> holders;  // the ranks of each hold the same values
  std::int64_t checksum;
};

// The checksum of a flat tensor, of its elements in fp32.
std::uint64_t checksum_of(ops::Context& ctx, const Tensor& flat) {
  std::uint64_t sum = 0;
  visit_on_host(ctx, flat, [&](std::int64_t first, std::span<const float> part) {
    const auto* words = reinterpret_cast<const std::uint32_t*>(part.data());
    sum += tensor_checksum({words, part.size()}, static_cast<std::uint64_t>(first));
  });
  return sum;
}

// The communicators each of whose ranks holds the same elements.
std::vector<Communicator*> holders_of(const Stage& stage, const nn::Residence& residence) {
  std::vector<Communicator*> holders;
  for (const Span& span : residence.copied) {
    if (stage.grid().shape().extent(span) > 1) holders.push_back(&stage.comm(span));
  }
  return holders;
}

std::vector<Held> all_held(ops::Context& ctx, const Stage& stage,
                           const optim::Optimizer& optimizer) {
  std::vector<Held> held;
  for (std::size_t i = 0; i < stage.groups().size(); ++i) {
    const nn::FlatGroup& group = *stage.groups()[i];
    for (const nn::FlatGroup::Part& part : group.parts()) {
      const std::string& name = part.parameter->name();
      const std::vector<Communicator*> holders = holders_of(stage, part.parameter->residence());
      const FlatRange in_shard{part.at, part.at + part.elements.size()};
      const auto weights = checksum_of(ctx, group.read_values(ctx, in_shard));
      held.push_back(
          {fmt::format("the weights of {}", name), holders, static_cast<std::int64_t>(weights)});
      if (!group.trains()) continue;
      std::uint64_t states = 0;  // in their order: a swap shows
      for (const auto& [state, elements] : optimizer.states(i, part)) {
        states = states * 0x9E3779B97F4A7C15u + checksum_of(ctx, elements);
      }
      held.push_back({fmt::format("the optimizer state of {}", name), holders,
                      static_cast<std::int64_t>(states)});
    }
  }
  std::vector<Communicator*> of_stage;  // all of its ranks, along both dimensions
  for (const Axes axes : {kDataAxes, Axes(Axis::kTensor)}) {
    if (stage.grid().extent(axes) > 1) of_stage.push_back(&stage.grid().comm(axes));
  }
  for (const auto& [parameter, name, values] : optimizer.whole_states()) {
    held.push_back({fmt::format("the optimizer state of {}", parameter->name()), of_stage,
                    static_cast<std::int64_t>(checksum_of(ctx, values))});
  }
  const ResidentGroup states = stage.residence_of_states();
  const std::vector<Communicator*> all = holders_of(stage, states.members.front());
  for (const nn::State* state : stage.states().states()) {
    const Tensor& value = state->value();
    const std::uint64_t sum = checksum_of(ctx, value.reshape({value.elements()}));
    held.push_back(
        {fmt::format("the state {}", state->name()), all, static_cast<std::int64_t>(sum)});
  }
  return held;
}

// Returns those whose checksum differs between ranks of comm; the same on each of them. ~x falls
// when x rises, so one minimum reduction finds the least and the greatest checksum.
std::vector<const Held*> differing(Communicator& comm, const std::vector<const Held*>& held) {
  std::vector<std::int64_t> least;
  for (const Held* one : held) least.push_back(one->checksum);
  for (const Held* one : held) least.push_back(~one->checksum);
  comm.all_reduce_host(std::span<std::int64_t>(least), ReduceOp::kMin);
  std::vector<const Held*> result;
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (least[i] != ~least[held.size() + i]) result.push_back(held[i]);
  }
  return result;
}

// "rank 3", "ranks 0, 1, 2".
std::string ranks_text(const std::vector<int>& ranks) {
  const std::size_t listed = std::min(ranks.size(), kMostListed);
  const std::string more =
      ranks.size() > listed ? fmt::format(" and {} more", ranks.size() - listed) : "";
  return fmt::format(
      "rank{} {}{}", ranks.size() == 1 ? "" : "s",
      fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(listed), ", "), more);
}

// Collective over comm. Says which ranks hold which value of `held`, the larger parties first.
std::string parties(Communicator& comm, const Held& held) {
  std::int64_t own = held.checksum;
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.size()));
  comm.all_gather(Stream(), Tensor::wrap(std::span<std::int64_t>(&own, 1)),
                  Tensor::wrap(std::span<std::int64_t>(all)))
      .wait_host();
  std::map<std::int64_t, std::vector<int>> by_value;
  for (int member = 0; member < comm.size(); ++member) {
    by_value[all[static_cast<std::size_t>(member)]].push_back(comm.world_rank(member));
  }
  std::vector<std::vector<int>> groups;
  for (auto& [value, ranks] : by_value) groups.push_back(std::move(ranks));
  std::ranges::stable_sort(groups, [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  std::string text =
      ranks_text(groups.front()) + (groups.front().size() == 1 ? " holds" : " hold") + " one value";
  for (std::size_t i = 1; i < std::min(groups.size(), kMostListed); ++i) {
    text += fmt::format(", {} another", ranks_text(groups[i]));
  }
  if (groups.size() > kMostListed) {
    text += fmt::format(", and there are {} more", groups.size() - kMostListed);
  }
  return text;
}

// Returns the text of the lowest rank that has one, on every rank; empty if no rank has one.
std::string first_text(Communicator& world, const std::string& text) {
  const int own = text.empty() ? world.size() : world.rank();
  const int first = world.all_reduce_host(own, ReduceOp::kMin);
  return first == world.size() ? "" : world.broadcast_text(text, first);
}

}  // namespace

void check_copies(ops::Context& ctx, const Stage& stage, const optim::Optimizer& optimizer,
                  std::int64_t step) {
  const ProcessGrid& grid = stage.grid();
  if (grid.world().size() == 1) return;
  const std::vector<Held> held = all_held(ctx, stage, optimizer);
  // The ranks of each communicator use them in the same order.
  std::vector<std::pair<Communicator*, std::vector<const Held*>>> by_holders;
  for (const Held& one : held) {
    for (Communicator* holders : one.holders) {
      auto found = std::ranges::find(by_holders, holders, [](const auto& e) { return e.first; });
      if (found == by_holders.end()) found = by_holders.insert(found, {holders, {}});
      found->second.push_back(&one);
    }
  }
  std::string text;
  for (const auto& [comm, theirs] : by_holders) {
    const std::vector<const Held*> found = differing(*comm, theirs);
    if (found.empty()) continue;
    const std::string who = parties(*comm, *found.front());  // all ranks of comm come here
    if (!text.empty()) continue;
    text = fmt::format("{}: {}", found.front()->what, who);
    if (found.size() > 1) text += fmt::format("; {} more of theirs differ", found.size() - 1);
  }
  text = first_text(grid.world(), text);
  if (text.empty()) return;
  throw InternalError(fmt::format(
      "after step {} ranks that must hold copies do not, in {}. Suspect the memory or the "
      "processor of a rank that differs, and go on from a checkpoint before",
      step, text));
}

}  // namespace trireme::parallel

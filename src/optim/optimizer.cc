#include "trireme/optim/optimizer.h"

#include <algorithm>

#include "trireme/nn/parameter.h"
#include "trireme/ops/elementwise.h"

#include "optim/whole_matrices.h"

namespace trireme::optim {
namespace {

FlatShard shard_of(const nn::FlatGroup& group, const FlatRange& elements) {
  const auto part = [&](const Tensor& shard) {
    return shard.flat_range(elements.begin, elements.end);
  };
  return {part(group.master()), part(group.gradient_shard()), part(group.weight_shard()),
          group.decay()};
}

// The matrices of a parameter: one, or one for each of its attention heads.
void add_matrices(std::vector<WholeMatrix>& matrices, const nn::Parameter& parameter,
                  const MatrixWork& work, bool heads_apart) {
  const std::int64_t rows = parameter.placement().global[0];
  const std::int64_t each = heads_apart ? rows / parameter.spec().heads : rows;
  for (std::int64_t begin = 0; begin < rows; begin += each) {
    matrices.push_back({&parameter, {begin, begin + each}, &work});
  }
}

}  // namespace

Optimizer::Optimizer(const OptimizerConfig& config, ops::Context& ctx, const ProcessGrid& grid,
                     const std::vector<nn::FlatGroup*>& groups)
    : groups_(groups) {
  std::vector<WholeMatrix> matrices;
  for (const nn::FlatGroup* group : groups) {
    std::vector<Piece>& pieces = pieces_.emplace_back();
    if (!group->trains()) continue;
    for (const nn::Parameter* parameter : group->parameters()) {
      const UpdateRule& rule = rule_of(config.of(parameter->spec()));
      if (const MatrixWork* work = rule.matrices()) {
        add_matrices(matrices, *parameter, *work, config.heads_apart);
      }
    }
    for (const nn::FlatGroup::Part& part : group->parts()) {
      const UpdateRule& rule = rule_of(config.of(part.parameter->spec()));
      const FlatRange elements = {part.at, part.at + part.elements.size()};
      if (!pieces.empty() && pieces.back().rule == &rule) {
        pieces.back().elements.end = elements.end;
      } else {
        pieces.push_back({.rule = &rule, .elements = elements, .shard = {}, .states = {}});
      }
    }
    if (pieces.empty()) {  // padding alone; all shards take equal memory
      const nn::ParameterSpec& last = group->parameters().back()->spec();
      pieces.push_back(
          {.rule = &rule_of(config.of(last)), .elements = {}, .shard = {}, .states = {}});
    }
    pieces.back().elements.end = group->sharding().shard_extent();
    for (Piece& piece : pieces) {
      piece.shard = shard_of(*group, piece.elements);
      for (std::string& name : piece.rule->states()) {
        const Tensor zero =
            ctx.allocate(piece.shard.master.shape(), DType::kF32, MemoryUse::kOptimizer);
        ops::fill(ctx, zero, 0.0f);
        piece.states.emplace_back(std::move(name), zero);
      }
    }
  }
  if (!matrices.empty()) matrices_ = std::make_unique<WholeMatrices>(grid, std::move(matrices));
}

Optimizer::~Optimizer() = default;

const UpdateRule& Optimizer::rule_of(const RuleSettings& settings) {
  for (const auto& [made_from, rule] : rules_) {
    if (made_from == settings) return *rule;
  }
  return *rules_.emplace_back(settings, make_rule(settings)).second;
}

Optimizer::Directions Optimizer::make_directions(ops::Context& ctx) const {
  Directions directions;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (const Piece& piece : pieces_[i]) {
      const MatrixWork* work = piece.rule->matrices();
      if (work == nullptr) continue;
      const Tensor& gradient = piece.shard.gradient;
      const Tensor direction =
          work->type() == DType::kF32
              ? gradient
              : ctx.allocate(gradient.shape(), work->type(), MemoryUse::kWorkspace);
      directions.of_pieces.emplace_back(&piece, direction);
      for (const nn::FlatGroup::Part& part : groups_[i]->parts()) {
        const std::int64_t at = part.at - piece.elements.begin;
        if (at < 0 || part.at >= piece.elements.end) continue;
        directions.by_parameter[part.parameter] =
            direction.flat_range(at, at + part.elements.size());
      }
    }
  }
  return directions;
}

void Optimizer::step(ops::Context& ctx) {
  const Directions directions = make_directions(ctx);
  for (const auto& [piece, direction] : directions.of_pieces) {
    piece->rule->matrices()->begin(ctx, piece->shard, piece->states, direction);
  }
  if (matrices_) matrices_->run(ctx, directions.by_parameter);
  auto next = directions.of_pieces.begin();
  for (const std::vector<Piece>& pieces : pieces_) {
    for (const Piece& piece : pieces) {
      FlatShard shard = piece.shard;
      if (next != directions.of_pieces.end() && next->first == &piece) {
        shard.gradient = (next++)->second;
      }
      piece.rule->update(ctx, shard, piece.states);
    }
  }
}

void Optimizer::connect(ops::Context& ctx) {
  if (matrices_) matrices_->connect(ctx, make_directions(ctx).by_parameter);
}

States Optimizer::states(std::size_t group, const nn::FlatGroup::Part& part) const {
  States states;
  for (const Piece& piece : pieces_.at(group)) {
    const std::int64_t at = part.at - piece.elements.begin;
    if (at < 0 || part.at >= piece.elements.end) continue;
    for (const auto& [name, state] : piece.states) {
      states.emplace_back(name, state.flat_range(at, at + part.elements.size()));
    }
  }
  return states;
}

}  // namespace trireme::optim

#include "trireme/optim/optimizer.h"

#include <utility>

#include "trireme/nn/parameter.h"
#include "trireme/ops/averages.h"
#include "trireme/ops/elementwise.h"
#include "trireme/tensor/copy.h"

#include "optim/whole_matrices.h"
#include "optim/whole_parameters.h"

namespace trireme::optim {
namespace {

bool is_of_whole(const UpdateRule& rule, const nn::Parameter& parameter) {
  return rule.needs_lengths() || rule.lines(parameter.placement().global) != nullptr;
}

FlatShard shard_of(const nn::FlatGroup& group, const FlatRange& elements, bool decay) {
  const auto part = [&](const Tensor& shard) {
    return shard.flat_range(elements.begin, elements.end);
  };
  return {part(group.master()), part(group.gradient_shard()), part(group.weight_shard()), decay};
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
    : average_(config.average), groups_(groups) {
  std::vector<WholeMatrix> matrices;
  std::vector<WholeParameters::Wanted> wanted;
  for (const nn::FlatGroup* group : groups) {
    if (!group->trains()) continue;
    for (const nn::Parameter* parameter : group->parameters()) {
      const UpdateRule& rule = rule_of(config.of(parameter->spec()));
      if (const MatrixWork* work = rule.matrices()) {
        add_matrices(matrices, *parameter, *work, config.heads_apart);
      }
      if (is_of_whole(rule, *parameter)) wanted.push_back({parameter, &rule});
    }
  }
  if (!wanted.empty()) whole_ = std::make_unique<WholeParameters>(ctx, grid, wanted);
  for (const nn::FlatGroup* group : groups) {
    std::vector<Piece>& pieces = pieces_.emplace_back();
    if (group->trains()) make_pieces(config, ctx, *group, pieces);
  }
  if (!matrices.empty()) matrices_ = std::make_unique<WholeMatrices>(grid, std::move(matrices));
}

void Optimizer::make_pieces(const OptimizerConfig& config, ops::Context& ctx,
                            const nn::FlatGroup& group, std::vector<Piece>& pieces) {
  const auto add = [&](const nn::Parameter& parameter, const FlatRange& elements) {
    const UpdateRule& rule = rule_of(config.of(parameter.spec()));
    if (!is_of_whole(rule, parameter) && !pieces.empty() && pieces.back().rule == &rule) {
      pieces.back().elements.end = elements.end;
      return;
    }
    Piece& piece = pieces.emplace_back();
    piece.rule = &rule;
    piece.first = &parameter;
    piece.elements = elements;
  };
  for (const nn::FlatGroup::Part& part : group.parts()) {
    add(*part.parameter, {part.at, part.at + part.elements.size()});
  }
  if (pieces.empty()) add(*group.parameters().back(), {});  // padding; all shards are equally large
  pieces.back().elements.end = group.sharding().shard_extent();
  for (Piece& piece : pieces) {
    piece.shard = shard_of(group, piece.elements, config.decay_all || group.decay());
    if (is_of_whole(*piece.rule, *piece.first)) {
      const std::int64_t first = group.sharding().memory().begin + piece.elements.begin;
      piece.shard.whole = &whole_->hold(*piece.first, piece.shard, first);
    }
    std::vector<std::string> names = piece.rule->states(piece.first->placement().global);
    if (average_) names.emplace_back(kWeightAverage);
    for (std::string& name : names) {
      const Tensor zero =
          ctx.allocate(piece.shard.master.shape(), DType::kF32, MemoryUse::kOptimizer);
      ops::fill(ctx, zero, 0.0f);
      piece.states.emplace_back(std::move(name), zero);
    }
  }
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
  if (whole_) whole_->average_lines(ctx);
  for (const std::vector<Piece>& pieces : pieces_) {
    for (const Piece& piece : pieces) piece.rule->prepare(ctx, piece.shard, piece.states);
  }
  if (whole_) whole_->take_lengths(ctx);
  update_shards(ctx, directions);
  if (average_) average_weights(ctx);
}

void Optimizer::update_shards(ops::Context& ctx, const Directions& directions) const {
  auto next = directions.of_pieces.begin();
  std::map<const UpdateRule*, std::vector<ShardUpdate>> updates;
  for (const std::vector<Piece>& pieces : pieces_) {
    for (const Piece& piece : pieces) {
      ShardUpdate update{piece.shard, &piece.states};
      if (next != directions.of_pieces.end() && next->first == &piece) {
        update.shard.gradient = (next++)->second;
      }
      updates[piece.rule].push_back(std::move(update));
    }
  }
  for (const auto& [settings, rule] : rules_) rule->update_all(ctx, updates[rule.get()]);
}

void Optimizer::average_weights(ops::Context& ctx) const {
  ops::count_average(ctx, *average_);
  for (const std::vector<Piece>& pieces : pieces_) {
    for (const Piece& piece : pieces) {
      ops::average_weights(ctx, *average_, piece.shard.master, piece.states.back().second);
    }
  }
}

void Optimizer::begin_averages(ops::Context& ctx,
                               const std::function<bool(const std::string&)>& of) const {
  if (!average_) return;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    for (const nn::FlatGroup::Part& part : groups_[i]->parts()) {
      if (!groups_[i]->trains() || !of(part.parameter->name())) continue;
      copy(nn::FlatGroup::view(groups_[i]->master(), part), states(i, part).back().second,
           ctx.stream);
    }
  }
}

void Optimizer::write_weights(ops::Context& ctx, bool averaged) const {
  for (const std::vector<Piece>& pieces : pieces_) {
    for (const Piece& piece : pieces) {
      if (!averaged) {
        piece.rule->write_weights(ctx, piece.shard, piece.states);
      } else {
        ops::cast(ctx, average_ ? piece.states.back().second : piece.shard.master,
                  piece.shard.weights);
      }
    }
  }
}

void Optimizer::connect(ops::Context& ctx) {
  if (matrices_) matrices_->connect(ctx, make_directions(ctx).by_parameter);
  if (whole_) whole_->connect(ctx);
}

std::vector<Optimizer::WholeState> Optimizer::whole_states() const {
  return whole_ ? whole_->states() : std::vector<WholeState>();
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

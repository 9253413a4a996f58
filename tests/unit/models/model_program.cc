// Computes with a model of any family what a test in Python compares with PyTorch.
//
//     model_program INPUT OUTPUT FAMILY [KEY=VALUE]...
//     model_program INPUT OUTPUT --run FOLDER
//
// The keys are those of model.*, without that prefix. Without them a run says what the model is,
// and its newest checkpoint holds the weights. INPUT and OUTPUT are files of named arrays
// (support/named_arrays.h). INPUT has `batch` (micro-batches, samples of each, learning rate; with
// a fourth number it computes in bf16, and OUTPUT has no results of training) and
// `field/NAME` for each field of the micro-batches, one behind the other. Without a run it also has
// `parameter/NAME` for each parameter under our names and in our layout, or `foreign/NAME` for the
// tensors of the family's foreign model. OUTPUT gets `logits` of the first micro-batch in
// evaluation, without targets, or of a causal model in generation; `loss` and `gradient/NAME` of a
// step's mean; the losses of two steps of SGD, `loss/1` and `loss/2`; and `trained/NAME` after
// them.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/dry_rank.h"
#include "trireme/inference/inference.h"
#include "trireme/models/family.h"
#include "trireme/nn/block_run.h"
#include "trireme/nn/fields.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/setup/found_checkpoint.h"

#include "support/named_arrays.h"

namespace trireme::testing {
namespace {

class Program {
 public:
  Program(models::Model model, const Arrays& given)
      : given_(given), model_(std::move(model)), sample_(models::sample_shape(model_.request)) {
    const Array& numbers = given.at("batch");
    micro_batches_ = static_cast<std::int64_t>(numbers.at(0));
    samples_ = static_cast<std::int64_t>(numbers.at(1));
    rate_ = numbers.at(2);
    in_bf16_ = numbers.size() > 3;
    parallel::StepOptions options;
    if (in_bf16_) options.stage.compute = DType::kBF16;
    options.optimizer.rule = {.name = "sgd", .weight_decay = 0.0f};
    step_.emplace(ctx_, grid_, model_.plan, options);
  }

  void read_weights(const Checkpoint& checkpoint) {
    parallel::Stage& stage = step_->stage();
    read_checkpoint(ctx_, checkpoint, stage, checkpoint_slices(stage, nullptr, false));
  }

  void take_given_weights() {
    for (const nn::Parameter* parameter : step_->stage().parameters()) {
      const auto ours = given_.find("parameter/" + parameter->name());
      const Array from = ours == given_.end() ? foreign(*parameter) : ours->second;
      // The vocabulary's rows are padded in memory.
      const auto to = parameter->weight().span<float>();
      if (from.size() > to.size()) throw std::runtime_error(parameter->name() + " is too large");
      std::copy(from.begin(), from.end(), to.begin());
    }
  }

  Arrays run() {
    Arrays results;
    results["logits"] =
        model_.attention && model_.attention->causal ? generated_logits() : logits();

    const auto first = step_->accumulate(micro_batches());
    results["loss"] = {static_cast<float>(first.loss)};
    for (const nn::Parameter* parameter : step_->stage().parameters()) {
      Array gradient = values_of(*parameter, parameter->gradient());
      for (float& value : gradient) value /= static_cast<float>(first.targets);
      results["gradient/" + parameter->name()] = gradient;
    }
    if (in_bf16_) return results;
    for (int number = 1; number <= 2; ++number) {
      const auto result = step_->train(micro_batches(), number, rate_, 1);
      results["loss/" + std::to_string(number)] = {static_cast<float>(result.loss)};
    }
    for (const nn::Parameter* parameter : step_->stage().parameters()) {
      results["trained/" + parameter->name()] = values_of(*parameter, parameter->weight());
    }
    return results;
  }

 private:
  // A parameter that lies in one foreign tensor, whole.
  Array foreign(const nn::Parameter& parameter) const {
    for (const models::ForeignTensor& tensor : model_.foreign().tensors) {
      for (const models::ForeignPart& part : tensor.parts) {
        if (part.ours != "parameters/" + parameter.name()) continue;
        const Array& theirs = given_.at("foreign/" + tensor.name);
        Array values(static_cast<std::size_t>(part.extent.elements()));
        for (std::size_t i = 0; i < values.size(); ++i) {
          std::int64_t rest = static_cast<std::int64_t>(i), at = part.offset;
          for (int d = part.extent.rank() - 1; d >= 0; --d) {
            at += rest % part.extent[d] * part.strides[static_cast<std::size_t>(d)];
            rest /= part.extent[d];
          }
          values[i] = theirs.at(static_cast<std::size_t>(at));
        }
        return values;
      }
    }
    throw std::runtime_error("nothing gives " + parameter.name());
  }

  Array forward(const nn::MicroBatch& batch) {
    nn::BlockRun run(ctx_, step_->stage().blocks(0), batch, nn::BlockRun::Keep::kNothing);
    const auto logits = run.forward({}).at(0).span<float>();
    return {logits.begin(), logits.end()};
  }
  Array logits() {
    nn::MicroBatch asked = micro_batch(0, false);
    nn::Fields fields;
    for (const nn::Field& field : asked.fields) {
      if (field.name != nn::kTargets) fields.set(field.name, field.tensor);
    }
    asked.fields = fields;
    return forward(asked);
  }
  // A causal model's head gives logits in generation alone, and of the last position alone: so the
  // positions of a text come one by one.
  Array generated_logits() {
    const Tensor tokens = micro_batch(0, false).field(nn::kTokens);
    const std::int64_t length = model_.plan.length, vocabulary = model_.data.vocabulary.value();
    Array all(static_cast<std::size_t>(samples_ * length * vocabulary));  // (B, T, V)
    nn::KeyValueCache cache;
    cache.capacity = length;
    for (; cache.past < length; ++cache.past) {
      nn::MicroBatch next;
      next.batch = samples_;
      next.length = 1;
      next.cache = &cache;
      const Tensor column = ctx_.allocate({samples_}, DType::kI32);
      for (std::int64_t b = 0; b < samples_; ++b) {
        column.data<std::int32_t>()[b] = tokens.data<std::int32_t>()[b * length + cache.past];
      }
      next.fields.set(nn::kTokens, column);
      const Array of_column = forward(next);  // (B, V)
      for (std::int64_t b = 0; b < samples_; ++b) {
        std::copy_n(of_column.begin() + b * vocabulary, vocabulary,
                    all.begin() + (b * length + cache.past) * vocabulary);
      }
    }
    return all;
  }

  static Array values_of(const nn::Parameter& parameter, const Tensor& tensor) {
    const auto values = tensor.span<float>();
    const auto count = parameter.placement().global.elements();
    return {values.begin(), values.begin() + count};
  }

  // The part of a field that belongs to this micro-batch.
  std::span<const float> part_of(const Array& field, std::int64_t number) const {
    const std::size_t size = field.size() / static_cast<std::size_t>(micro_batches_);
    return std::span(field).subspan(static_cast<std::size_t>(number) * size, size);
  }

  nn::MicroBatch micro_batch(std::int64_t number, bool training) {
    nn::MicroBatch batch;
    batch.batch = samples_;
    batch.length = model_.plan.length;
    batch.training = training;
    batch.samples = ctx_.allocate({samples_}, DType::kI64);
    for (std::int64_t b = 0; b < samples_; ++b) {
      batch.samples.data<std::int64_t>()[b] = number * samples_ + b;
    }
    for (const auto& [name, values] : given_) {
      if (!name.starts_with("field/")) continue;
      const auto part = part_of(values, number);
      const std::string field = name.substr(6);
      if (field == nn::kPixels) {
        const Tensor pixels =
            ctx_.allocate({samples_, sample_[0], sample_[1], sample_[2]}, DType::kF32);
        std::copy(part.begin(), part.end(), pixels.data<float>());
        batch.fields.set(field, pixels);
        continue;
      }
      const Tensor numbers = ctx_.allocate({std::ssize(part)}, DType::kI32);
      std::transform(part.begin(), part.end(), numbers.data<std::int32_t>(),
                     [](float value) { return static_cast<std::int32_t>(value); });
      batch.fields.set(field, numbers);
      if (field == nn::kTargets) {
        batch.target_count =
            std::count_if(part.begin(), part.end(), [](float value) { return value >= 0; });
      }
    }
    batch.loss_sum = ctx_.allocate({1}, DType::kF64);
    batch.loss_sum.data<double>()[0] = 0.0;
    return batch;
  }
  std::vector<nn::MicroBatch> micro_batches() {
    std::vector<nn::MicroBatch> all;
    for (std::int64_t i = 0; i < micro_batches_; ++i) all.push_back(micro_batch(i, true));
    return all;
  }

  const Arrays& given_;
  models::Model model_;
  Shape sample_;
  std::int64_t micro_batches_ = 0, samples_ = 0;
  float rate_ = 0.0f;
  bool in_bf16_ = false;
  ops::Context ctx_ = ops::make_cpu_context(1);
  DryRank rank_{{}};
  ProcessGrid grid_{rank_, {1, 1, 1}};
  std::optional<parallel::TrainerStep> step_;
};

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  using namespace trireme;
  using testing::Program;
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() < 3 || (words[2] == "--run" && words.size() != 4)) return 2;
  try {
    const testing::Arrays given = testing::read_arrays(words[0]);
    std::optional<Program> program;
    if (words[2] == "--run") {
      DryRank rank{{}};
      const Checkpoint checkpoint = open_checkpoint_or_run(rank.world(), words[3]);
      program.emplace(InferencePlan(checkpoint).model, given);
      program->read_weights(checkpoint);
    } else {
      models::ModelRequest request{words[2], {}};
      for (const std::string& word : std::span(words).subspan(3)) {
        const std::size_t equals = word.find('=');
        if (equals == std::string::npos) return 2;
        request.keys[word.substr(0, equals)] = word.substr(equals + 1);
      }
      program.emplace(models::resolve(request, {}), given);
      program->take_given_weights();
    }
    testing::write_arrays(words[1], program->run());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

// Computes with a convolutional network what convolutional_torch_test.py compares with PyTorch.
//
//     convolutional_program FAMILY INPUT OUTPUT
//
// Both are files of named arrays (support/named_arrays.h). INPUT has `config` (classes, side of the
// pictures, 1 for CIFAR's stem, label smoothing, micro-batches, samples of each, learning rate),
// `network` (of mobilenet_v2 the width multiple and four numbers for each stage; of resnet the
// width, 1 for bottlenecks, and the blocks of each stage), `pixels`, `targets`, and the model's
// tensors under torchvision's names. OUTPUT gets `logits` of evaluation; `loss` and `gradient/NAME`
// of a step; the losses of two steps of SGD, `loss/1` and `loss/2`; and `trained/NAME` after them.
#include <algorithm>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/comm/dry_rank.h"
#include "trireme/nn/block_run.h"
#include "trireme/parallel/trainer_step.h"

#include "models/mobilenet_v2/torchvision_names.h"
#include "models/resnet/torchvision_names.h"
#include "support/named_arrays.h"

namespace trireme::testing {
namespace {

using models::ForeignTensor;

// Copies between a tensor of theirs and the part of ours that it is.
void copy(const models::ForeignPart& part, std::span<float> ours, std::span<float> theirs,
          bool to_ours) {
  std::vector<std::int64_t> at(part.strides.size(), 0);
  for (float& value : ours) {
    std::int64_t place = part.offset;
    for (std::size_t d = 0; d < at.size(); ++d) place += at[d] * part.strides[d];
    float& other = theirs[static_cast<std::size_t>(place)];
    (to_ours ? value : other) = to_ours ? other : value;
    for (std::size_t d = at.size(); d-- > 0;) {
      if (++at[d] < part.extent[static_cast<int>(d)]) break;
      at[d] = 0;
    }
  }
}

// A model by what all families have.
struct Network {
  nn::ModelPlan plan;
  std::vector<ForeignTensor> names;
};

std::int64_t whole(const Array& numbers, std::size_t i) {
  return static_cast<std::int64_t>(numbers.at(i));
}

Network mobilenet_v2(const models::ConvolutionalConfig& common, const Array& numbers) {
  models::MobileNetV2Config config;
  static_cast<models::ConvolutionalConfig&>(config) = common;
  config.width_multiple = static_cast<double>(numbers.at(0));
  config.dropout = 0.0;
  config.stages.clear();
  for (std::size_t i = 1; i + 3 < numbers.size(); i += 4) {
    config.stages.push_back(
        {whole(numbers, i), whole(numbers, i + 1), whole(numbers, i + 2), whole(numbers, i + 3)});
  }
  return {models::mobilenet_v2_plan(config), models::torchvision_model(config).tensors};
}

Network resnet(const models::ConvolutionalConfig& common, const Array& numbers) {
  models::ResNetConfig config;
  static_cast<models::ConvolutionalConfig&>(config) = common;
  config.width = whole(numbers, 0);
  config.bottlenecks = whole(numbers, 1) == 1;
  config.stages.clear();
  for (std::size_t i = 2; i < numbers.size(); ++i) config.stages.push_back(whole(numbers, i));
  return {models::resnet_plan(config), models::torchvision_model(config).tensors};
}

class Program {
 public:
  Program(const std::string& family, const Arrays& given) : given_(given) {
    const Array& numbers = given.at("config");
    models::ConvolutionalConfig config;
    config.classes = whole(numbers, 0);
    config.image = image_ = whole(numbers, 1);
    config.stem = whole(numbers, 2) == 1 ? models::ConvolutionalConfig::Stem::kCifar
                                         : models::ConvolutionalConfig::Stem::kImagenet;
    config.label_smoothing = static_cast<double>(numbers.at(3));
    micro_batches_ = whole(numbers, 4);
    samples_ = whole(numbers, 5);
    rate_ = numbers.at(6);
    const Network network =
        (family == "resnet" ? resnet : mobilenet_v2)(config, given.at("network"));
    names_ = network.names;
    parallel::StepOptions options;
    options.optimizer.rule = {.name = "sgd", .weight_decay = 0.0f};
    step_.emplace(ctx_, grid_, network.plan, options);
    for (const ForeignTensor& tensor : names_) load(tensor);
  }

  Arrays run() {
    Arrays results;
    nn::MicroBatch picture = micro_batch(0, false);
    nn::Fields pixels;
    pixels.set(nn::kPixels, picture.field(nn::kPixels));
    picture.fields = pixels;
    nn::BlockRun forward(ctx_, step_->stage().blocks(0), picture, nn::BlockRun::Keep::kNothing);
    const Tensor logits = forward.forward({}).at(0);
    results["logits"] = Array(logits.span<float>().begin(), logits.span<float>().end());

    const auto first = step_->accumulate(micro_batches());
    results["loss"] = {static_cast<float>(first.loss)};
    for (const ForeignTensor& tensor : names_) {
      if (is_state(tensor)) continue;
      Array gradient = theirs(tensor, parameter_of(name_of(tensor)).gradient().span<float>());
      for (float& value : gradient) value /= static_cast<float>(first.targets);
      results["gradient/" + tensor.name] = gradient;
    }
    for (int number = 1; number <= 2; ++number) {
      const auto result = step_->train(micro_batches(), number, rate_, 1);
      results["loss/" + std::to_string(number)] = {static_cast<float>(result.loss)};
    }
    for (const ForeignTensor& tensor : names_) {
      results["trained/" + tensor.name] = theirs(tensor, values_of(tensor));
    }
    return results;
  }

 private:
  const nn::Parameter& parameter_of(const std::string& name) {
    for (const nn::Parameter* parameter : step_->stage().parameters()) {
      if (parameter->name() == name) return *parameter;
    }
    throw std::runtime_error("there is no parameter " + name);
  }
  // Every one of theirs is one part of ours.
  static bool is_state(const ForeignTensor& tensor) {
    return tensor.parts.front().ours.starts_with("state/");
  }
  static std::string name_of(const ForeignTensor& tensor) {
    const std::string& ours = tensor.parts.front().ours;
    return ours.substr(ours.find('/') + 1);
  }
  std::span<float> values_of(const ForeignTensor& tensor) {
    if (!is_state(tensor)) return parameter_of(name_of(tensor)).weight().span<float>();
    for (const nn::State* state : step_->stage().states().states()) {
      if (state->name() != name_of(tensor)) continue;
      const std::int64_t row = tensor.parts.front().start.front();
      return state->value().rows(row, row + 1).span<float>();
    }
    throw std::runtime_error("there is no state " + name_of(tensor));
  }
  static Array theirs(const ForeignTensor& tensor, std::span<float> values) {
    Array result(values.size());
    copy(tensor.parts.front(), values, result, false);
    return result;
  }
  void load(const ForeignTensor& tensor) {
    const std::span<float> to = values_of(tensor);
    Array from = given_.at(tensor.name);
    if (from.size() != to.size()) throw std::runtime_error(tensor.name + " has another size");
    copy(tensor.parts.front(), to, from, true);
  }

  nn::MicroBatch micro_batch(std::int64_t number, bool training) {
    nn::MicroBatch batch;
    batch.batch = samples_;
    batch.length = 1;
    batch.training = training;
    batch.target_count = samples_;
    const Tensor pixels = ctx_.allocate({samples_, image_, image_, 3}, DType::kF32);
    const Tensor targets = ctx_.allocate({samples_}, DType::kI32);
    const auto begin = given_.at("pixels").begin() + number * pixels.elements();
    std::copy(begin, begin + pixels.elements(), pixels.data<float>());
    batch.samples = ctx_.allocate({samples_}, DType::kI64);
    for (std::int64_t b = 0; b < samples_; ++b) {
      const std::int64_t sample = number * samples_ + b;
      batch.samples.data<std::int64_t>()[b] = sample;
      targets.data<std::int32_t>()[b] =
          static_cast<std::int32_t>(given_.at("targets").at(static_cast<std::size_t>(sample)));
    }
    batch.fields.set(nn::kPixels, pixels);
    batch.fields.set(nn::kTargets, targets);
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
  std::vector<ForeignTensor> names_;
  std::int64_t image_ = 0, micro_batches_ = 0, samples_ = 0;
  float rate_ = 0.0f;
  ops::Context ctx_ = ops::make_cpu_context(1);
  DryRank rank_{{}};
  ProcessGrid grid_{rank_, {1, 1, 1}};
  std::optional<parallel::TrainerStep> step_;
};

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  using namespace trireme::testing;
  if (argc != 4) return 2;
  try {
    const Arrays given = read_arrays(argv[2]);
    write_arrays(argv[3], Program(argv[1], given).run());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}

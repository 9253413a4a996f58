// What families of convolutional networks that classify pictures have in common: the values and
// keys of all of them, their first and last blocks, and the plan and the operations of a network
// whose layers are known. They are as torchvision has them: batch norms with epsilon 1e-5 and
// momentum 0.1, convolutions without biases, a classifier with one; norms and biases do not decay.
// Weights of convolutions are normal with variance 2 / (output channels x taps) at first.
// Convolutions are not split over tensor ranks.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/models/family.h"
#include "trireme/models/onnx.h"

#include "models/convolution_norm.h"
#include "models/keys.h"

namespace trireme::models {

struct ConvolutionalConfig {
  // How much the first layers make the picture smaller.
  enum class Stem {
    kImagenet,  // as published
    kCifar      // less, as is customary for small pictures
  };

  std::int64_t classes = 1000;
  std::int64_t image = 224;  // side of the picture, pixels
  Stem stem = Stem::kImagenet;
  double label_smoothing = 0.0;
  // In training batch norms take their statistics from the micro-batches that the data replicas
  // compute together, as one rank with as many times the samples would; the replicas then divide
  // the micro-batches of a step. Otherwise from a micro-batch, the same samples on every grid, so
  // that results depend on batch.micro.
  bool sync = false;
};

// A convolution, and perhaps the largest of 3 x 3 pixels with stride 2.
struct StemSizes {
  ConvolutionNorm::Sizes convolution;
  bool pools = false;

  ops::PoolingShape pooling(std::int64_t samples, std::int64_t image) const {
    const std::int64_t side = convolution.side_after(image);
    return {samples, side, side, convolution.out, 3, 3, 2, 1};
  }
  // The side of what it hands on.
  std::int64_t side_after(std::int64_t image) const {
    return pools ? pooling(1, image).out_height() : convolution.side_after(image);
  }
};

// A network as the list of its layers. Its blocks are `stem`, `blocks`, and `head`.
struct ConvolutionalNetwork {
  struct Layer {
    ConvolutionNorm::Sizes sizes;
    std::int64_t side;  // of its input, pixels
    bool clamps = true;
    bool adds = false;         // the other path of a residual block
    std::string name = {};     // of its parameters
    bool is_shortcut = false;  // it is the other path, which reads the block's input
  };
  struct Block {
    std::string name;
    std::vector<Layer> layers;
    std::int64_t side, channels;  // of the pictures that it hands on
    std::function<std::unique_ptr<nn::Block>(nn::BuildContext&)> build;
  };

  std::string name;  // for people, with its size: "ResNet-18"
  ops::Clamp clamp;  // what follows the norms of stem and head
  StemSizes stem;
  std::vector<Block> blocks;
  // The head: perhaps a convolution, the mean over the picture, dropout, the classifier.
  std::optional<ConvolutionNorm::Sizes> last = {};
  double dropout = 0.0;
  nn::LinearInitial classifier;

  std::int64_t head_channels() const { return last ? last->out : blocks.back().channels; }
};

nn::ModelPlan plan_of(const ConvolutionalConfig& config, const ConvolutionalNetwork& network);
// `pixels` (batch, 3, height, width), normalised -> `logits` (batch, classes).
OnnxModel onnx_model(const ConvolutionalConfig& config, const ConvolutionalNetwork& network,
                     ForeignModel foreign, DType weights);
// Returns the operations, each size once.
std::vector<Operation> operations_of(const ConvolutionalConfig& config,
                                     const ConvolutionalNetwork& network, std::int64_t samples);
// `keys`: all values of the model, written out.
Model model_of(std::string_view family, const OptionValues& keys, const ConvolutionalConfig& config,
               const ConvolutionalNetwork& network);

// The context of the layers NAME.* of a block.
nn::LayerContext layer_of(nn::ParameterSet& parameters, const nn::BuildContext& build,
                          const std::string& name);
// The ranks that share the statistics of batch norms, or null.
std::shared_ptr<Communicator> sharing_norms(const ConvolutionalConfig& config,
                                            nn::BuildContext& build);

class ConvolutionalFamily : public Family {
 public:
  std::string_view task() const final { return "classification"; }
  void add_keys(Options& options, OptionValues& keys) const final;
  void check_keys(const OptionValues& /*keys*/) const override {}
  bool joins_replicas(const OptionValues& keys) const final;
  bool has_batch_norms() const final { return true; }
  Shape sample_shape(const OptionValues& keys) const final;
  std::string summary(const OptionValues& keys) const final;

 protected:
  virtual std::string preset_help() const = 0;
  // Adds the keys that only this family has.
  virtual void add_own_keys(const KeyAdder& model) const = 0;
  virtual std::vector<std::string> own_words(const OptionValues& keys) const = 0;  // of the summary
  // Throws ConfigError for an unknown preset.
  virtual ConvolutionalConfig preset_of(const OptionValues& keys) const = 0;

  // Sets what all of these families have: `config` is the preset.
  void apply_keys(const OptionValues& keys, const DataFacts& data,
                  ConvolutionalConfig& config) const;
  static OptionValues written_keys(const ConvolutionalConfig& config);
};

}  // namespace trireme::models

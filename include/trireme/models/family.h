// Model families: all that is known of one outside of its folder, src/models/<family>.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/base/options.h"
#include "trireme/comm/grid_shape.h"
#include "trireme/models/foreign.h"
#include "trireme/models/onnx.h"
#include "trireme/models/operations.h"
#include "trireme/nn/block.h"

namespace trireme::models {

// What is asked of a model: its family, and the values of the family's keys model.*. A key without
// a value follows from elsewhere: the preset, the data, built-in values.
struct ModelRequest {
  std::string family = "gpt";
  OptionValues keys = {};  // "layers": "12"

  bool operator==(const ModelRequest&) const = default;
};

// What the data say about a model's input and output.
struct DataFacts {
  std::optional<int> vocabulary = {};  // tokens
  std::optional<int> classes = {};     // of pictures
};

// A model with every value resolved.
struct Model {
  ModelRequest request;  // with every value written out, so that a checkpoint needs no preset
  nn::ModelPlan plan;
  DataFacts data = {};  // what the data must be for this model
  // The attention of one sample over all tensor ranks; nothing for a model without attention.
  std::optional<ops::AttentionShape> attention = {};
  // The numbers of positions beyond which all of a text's positions turn by others (LongRoPE):
  // GenerationOptions::far_from.
  std::vector<std::int64_t> far_from = {};
  // Throws ConfigError where the tensor ranks of a grid cannot divide the model. The message says
  // which numbers, or which other dimensions of the grid, could.
  std::function<void(const GridShape&)> check_grid = {};
  // The operations of one block of each kind, for a micro-batch of so many samples.
  std::function<std::vector<Operation>(std::int64_t samples)> operations = {};
  // The model as other programs store it; empty: none does. Throws ConfigError where they know no
  // such model of the family.
  std::function<ForeignModel()> foreign = {};
  // The same for a family whose models other programs have under several types: as that type has
  // it. It is a model_type, which an import has from config.json; or a ForeignModel::format, which
  // an export has from the import before it, and which counts only where it is all of the model.
  std::function<ForeignModel(std::string_view type)> foreign_as = {};
  // The parameters whose shapes follow from the number of classes, and which nothing but the
  // outputs depends on: those that another task begins with fresh values. Empty: there are none.
  std::vector<std::string> head = {};
  // The model as a graph of ONNX with weights of that type (fp32, bf16, fp16); empty: it cannot be
  // written as one.
  std::function<OnnxModel(DType weights)> onnx = {};
};

// Stateless. Errors are ConfigErrors that name the keys as users do, "model.layers".
class Family {
 public:
  virtual ~Family() = default;

  virtual std::string_view name() const = 0;
  virtual std::string_view task() const = 0;  // what its models are trained for: a name of a task
  // The values of the key model.preset. The first one stands for the family where nobody names one.
  virtual std::vector<std::string_view> presets() const = 0;

  // Declares the keys model.*, bound to `keys`, which must outlive `options`.
  virtual void add_keys(Options& options, OptionValues& keys) const = 0;
  // Checks the keys against each other, as far as they have values.
  virtual void check_keys(const OptionValues& keys) const = 0;
  // Returns the shape of a sample's input: (tokens) for text, (height, width, 3) for pictures. It
  // is asked for before the data are opened, since it decides what a sample is.
  virtual Shape sample_shape(const OptionValues& keys) const = 0;
  // Returns the model: the preset, overridden by keys, and built-in values for the rest. What the
  // data say counts more than a preset. Without it (an empty `data`) the vocabulary or the classes
  // are the usual ones of the family. Throws ConfigError for a key that contradicts the data.
  virtual Model resolve(const OptionValues& keys, const DataFacts& data) const = 0;
  // Returns the model in a few words, for pages and tables: "6 layers, 256 wide". Names only what
  // the keys say.
  virtual std::string summary(const OptionValues& keys) const = 0;
  // Whether the keys ask for blocks that are nn::BlockPlan::together: then micro-batches are dealt
  // to the data replicas one by one, and the replicas divide their number.
  virtual bool joins_replicas(const OptionValues& /*keys*/) const { return false; }
  // Whether it has batch norms: results depend on which samples meet in a micro-batch then, and
  // batch.micro is a number.
  virtual bool has_batch_norms() const { return false; }
  // The values of model_type in the config.json of transformers that keys_of_foreign reads.
  virtual std::vector<std::string_view> foreign_types() const { return {}; }
  // Returns the keys of the model that a config.json describes. Throws ConfigError, which names the
  // field, for what the family does not have.
  virtual ForeignKeys keys_of_foreign(const Json& config) const;
};

// The registry. The first family is the default.
const std::vector<const Family*>& families();
std::vector<std::string> family_names();
// Throws ConfigError for an unknown name; the message lists the families.
const Family& find_family(std::string_view name);

// The same as the family's functions of these names.
Model resolve(const ModelRequest& request, const DataFacts& data);
Shape sample_shape(const ModelRequest& request);
std::string summary(const ModelRequest& request);
bool joins_replicas(const ModelRequest& request);
bool has_batch_norms(const ModelRequest& request);

// A model that a config.json of transformers describes.
struct ForeignRequest {
  ModelRequest model;
  std::string type;                   // as ForeignKeys::type
  std::vector<std::string> not_read;  // fields that we do not know
};
// Throws ConfigError for a model_type that no family reads, and what the family throws.
ForeignRequest read_foreign_config(const Json& config);

}  // namespace trireme::models

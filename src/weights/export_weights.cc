#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/file_set.h"
#include "trireme/io/safetensors.h"
#include "trireme/io/together.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/setup/checkpoint_tokenizer.h"
#include "trireme/setup/finite_values.h"
#include "trireme/setup/found_checkpoint.h"
#include "trireme/tasks/pictures.h"
#include "trireme/tasks/texts.h"
#include "trireme/weights/foreign_weights.h"

#include "weights/foreign_pieces.h"

namespace trireme {
namespace {

constexpr const char* kConfigName = "config.json";
constexpr std::int64_t kWrittenAtOnce = std::int64_t{1} << 20;  // elements
// What a rank holds of the model at one time, but at least its part of a tensor.
constexpr std::int64_t kHeldAtOnce = std::int64_t{1} << 25;  // elements

models::Model exported_model(const Checkpoint& checkpoint) {
  try {
    Config config = config_from_ini(checkpoint.info().config, checkpoint.path());
    const models::Model trained = models::resolve(config.model, {});
    const std::int64_t context = foreign_context(checkpoint.info());
    if (context <= trained.plan.length) return trained;
    config.model.keys["context"] = write_value(context);
    return models::resolve(config.model, {});
  } catch (const ConfigError& error) {
    throw CheckpointError(fmt::format("{}: its configuration describes no model: {}",
                                      checkpoint.path(), error.what()));
  }
}

// The model's tensors and those of the file must be the same ones.
void check_tensors(const Checkpoint& checkpoint, const models::ForeignModel& model) {
  std::set<std::string, std::less<>> named;
  for (const models::ForeignTensor& tensor : model.tensors) {
    for (const models::ForeignPart& part : tensor.parts) {
      named.insert(part.ours);
      const CheckpointTensor* held = checkpoint.contents().find(part.ours);
      if (held != nullptr && held->shape == part.shape && held->dtype == DType::kF32) continue;
      throw CheckpointError(fmt::format(
          "{}: tensor {} is {}, its configuration describes one of fp32 {}", checkpoint.path(),
          part.ours,
          held == nullptr ? "missing"
                          : fmt::format("{} {}", name_of(held->dtype), held->shape.to_string()),
          part.shape.to_string()));
    }
  }
  for (const CheckpointTensor& tensor : checkpoint.contents().tensors) {
    if (!tensor.name.starts_with("parameters/") || named.contains(tensor.name)) continue;
    throw CheckpointError(fmt::format("{}: holds {}, which its configuration does not describe",
                                      checkpoint.path(), tensor.name));
  }
}

template <class T>
void convert(std::span<const float> from, std::vector<T>& to, const std::string& name) {
  to.clear();
  for (const float value : from) {
    to.emplace_back(value);
    if (std::isfinite(value) && !std::isfinite(static_cast<float>(to.back()))) {
      throw DataError(fmt::format("tensor {} holds {}, which {} cannot: give another --dtype", name,
                                  value, name_of(dtype_of<T>())));
    }
  }
}

// Writes bytes of a tensor, from byte `first` of it on.
using WriteBytes = std::function<void(std::size_t tensor, std::int64_t first, const void* from,
                                      std::int64_t bytes)>;

// The normalisation with what pixels are divided by.
std::string applied_normalisation(const std::string& text) {
  auto statistics = read_normalisation(text);
  if (!statistics) return text;
  for (std::size_t c = 0; c < 3; ++c) statistics->deviation[c] = statistics->divisor(c);
  return normalisation_text(*statistics);
}

// What a checkpoint says of the model's data, for who uses the model elsewhere: the names of the
// classes, what pixels are normalised by, the size of the pictures.
void add_metadata(const Checkpoint& checkpoint, const models::Model& model,
                  models::OnnxModel& graph) {
  graph.metadata.emplace_back("model.family", model.request.family);
  for (const auto& [key, value] : model.request.keys) {
    graph.metadata.emplace_back("model." + key, value);
  }
  const auto& extra = checkpoint.info().extra;
  for (const char* name : {kClassesAttribute, kNormalisationAttribute, kPictureSizeAttribute}) {
    const auto found = extra.find(name);
    if (found == extra.end()) continue;
    graph.metadata.emplace_back(name, name == std::string_view(kNormalisationAttribute)
                                          ? applied_normalisation(found->second)
                                          : found->second);
  }
}

class Export {
 public:
  Export(Communicator& world, const ExportRequest& request)
      : world_(world),
        request_(request),
        checkpoint_(open_checkpoint_or_run(world, request.checkpoint)),
        model_(exported_model(checkpoint_)) {}

  ExportResult run() {
    return request_.format == ExportRequest::Format::kOnnx ? write_onnx() : write_safetensors();
  }

 private:
  ExportResult write_safetensors() {
    if (!model_.foreign) {
      throw ConfigError(fmt::format("models of family {} have no names in other programs",
                                    model_.request.family));
    }
    const std::string format = foreign_format(checkpoint_.info());
    const bool has_type = model_.foreign_as && !format.empty();
    foreign_ = has_type ? model_.foreign_as(format) : model_.foreign();
    check_tensors(checkpoint_, foreign_);
    std::vector<SafetensorsTensor> tensors;
    for (const models::ForeignTensor& tensor : foreign_.tensors) {
      const auto extents = tensor.shape.extents();
      tensors.push_back({tensor.name, {extents.begin(), extents.end()}});
    }
    std::map<std::string, std::string, std::less<>> beside;
    if (foreign_.config) beside.emplace(kConfigName, with_tokens_around(foreign_.config()));
    beside.merge(tokenizer_files(foreign_.config ? foreign_.config() : "{}"));
    SafetensorsWriter writer(world_, request_.folder, std::move(tensors), request_.dtype,
                             request_.most_bytes, beside);
    move_all([&](std::size_t tensor, std::int64_t first, const void* from, std::int64_t bytes) {
      writer.write(tensor, first, from, bytes);
    });
    ExportResult result = result_of(foreign_.format, writer.finish());
    for (const auto& [name, text] : beside) result.files.push_back(name);
    return result;
  }

  // config.json with the tokens that begin and end texts, where the checkpoint knows them.
  std::string with_tokens_around(const std::string& config) const {
    const auto& extra = checkpoint_.info().extra;
    Json json = Json::parse(config);
    for (const auto& [field, attribute] : {std::pair("bos_token_id", kBeginOfTextAttribute),
                                           {"eos_token_id", kEndOfTextAttribute}}) {
      const auto token = extra.find(attribute);
      const bool is_known = token != extra.end() && token->second != kNoToken;
      if (is_known && json.find(field) != nullptr) json[field] = std::stoi(token->second);
    }
    return json.dump(2) + "\n";
  }

  // Collective over the world. Files of the tokenizer, which other programs read, contents by name.
  std::map<std::string, std::string, std::less<>> tokenizer_files(const std::string& config) {
    const std::string packed = world_.read_once([&] {
      Json all = Json::array();
      const TokenizerFiles files =
          read_tokenizer_files(checkpoint_.path(), checkpoint_.info().extra);
      try {
        const FilesForOthers given = files_for_others(files, model_.plan.length);
        for (const auto& [name, text] : given.files) all.push_back(Json::array({name, text}));
        remark_ = given.remark;
        const Json described = Json::parse(config);
        const Json* type = described.find("model_type");
        if (files.tokenizer && files.brought.empty() && type && type->text() == "qwen2") {
          remark_ =
              "AutoTokenizer of transformers 5 gives any qwen2 the tokens of Qwen's own tokenizer: "
              "PreTrainedTokenizerFast.from_pretrained loads the one in this folder";
        }
      } catch (const DataError& error) {
        remark_ = fmt::format("the files have no tokenizer: {}", error.what());
      }
      return all.to_cbor();
    });
    std::map<std::string, std::string, std::less<>> files;
    const Json all = Json::from_cbor(packed);
    for (const Json& one : all.items()) {
      files.emplace(one.at(0).text(), one.at(1).text());
    }
    return files;
  }

  ExportResult write_onnx() {
    if (!model_.onnx) {
      throw ConfigError(
          fmt::format("models of family {} cannot be written as ONNX: --format "
                      "safetensors writes their weights",
                      model_.request.family));
    }
    models::OnnxModel graph = model_.onnx(request_.dtype);
    add_metadata(checkpoint_, model_, graph);
    foreign_.tensors = graph.weights;
    check_tensors(checkpoint_, foreign_);
    const models::OnnxPlaces places = models::places_of_weights(graph);
    FileSetWriter writer(
        world_, request_.folder,
        {{kOnnxDataName, "", places.bytes}, {kOnnxName, models::encoded(graph, kOnnxDataName)}},
        [](std::string_view name) { return name == kOnnxName || name == kOnnxDataName; });
    move_all([&](std::size_t tensor, std::int64_t first, const void* from, std::int64_t bytes) {
      writer.write(0, places.offsets.at(tensor) + first, from, bytes);
    });
    writer.finish();
    return result_of(fmt::format("graph of ONNX ({} operations, operator set {})",
                                 graph.nodes.size(), models::kOnnxOperators),
                     {kOnnxName, kOnnxDataName});
  }

  // Collective over the world.
  ExportResult result_of(std::string format, std::vector<std::string> files) const {
    std::int64_t elements = 0;
    for (const models::ForeignTensor& tensor : foreign_.tensors) {
      elements += tensor.shape.elements();
    }
    return {.checkpoint = checkpoint_.path(),
            .format = std::move(format),
            .tensors = foreign_.tensors.size(),
            .bytes = elements * static_cast<std::int64_t>(size_of(request_.dtype)),
            .files = std::move(files),
            .remark = remark_,
            .not_finite = finite_.fault(world_)};
  }

  // Collective over the world.
  void move_all(const WriteBytes& write) {
    for (std::size_t first = 0; first < foreign_.tensors.size();) {
      const std::size_t last = end_of_round(first);
      move_tensors(write, first, last);
      first = last;
    }
  }

  // A round takes whole tensors, so that the checkpoint is read once.
  std::size_t end_of_round(std::size_t first) const {
    std::int64_t elements = 0;
    std::size_t last = first;
    while (last < foreign_.tensors.size() &&
           (last == first ||
            elements + foreign_.tensors[last].shape.elements() <= kHeldAtOnce * world_.size())) {
      elements += foreign_.tensors[last++].shape.elements();
    }
    return last;
  }

  // Collective over the world.
  void move_tensors(const WriteBytes& write, std::size_t first, std::size_t last) {
    std::vector<ForeignPiece> pieces =
        foreign_pieces(foreign_, first, last, world_.rank(), world_.size());
    std::vector<TensorSlice> wanted;
    for (ForeignPiece& piece : pieces) {
      piece.allocate();
      wanted.push_back(piece.slice);
    }
    if (request_.weights == "average") take_averages(checkpoint_, wanted);
    checkpoint_.read(world_, wanted);
    run_together(world_, [&] {
      for (const ForeignPiece& piece : pieces) {
        if (request_.dtype == DType::kF32) write_as<float>(write, piece);
        if (request_.dtype == DType::kBF16) write_as<BFloat16>(write, piece);
        if (request_.dtype == DType::kF16) write_as<Half>(write, piece);
      }
    });
  }

  template <class T>
  void write_as(const WriteBytes& write, const ForeignPiece& piece) {
    std::vector<float> values;
    std::vector<T> converted;
    for_each_run(piece, kWrittenAtOnce, [&](const ForeignRun& run) {
      values.resize(static_cast<std::size_t>(run.count));
      give_run(piece, run, values);
      finite_.look_at(foreign_.tensors[piece.tensor].name, values);
      convert(values, converted, piece.slice.name);
      constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
      write(piece.tensor, run.foreign * kSize, converted.data(), run.count * kSize);
    });
  }

  Communicator& world_;
  const ExportRequest& request_;
  const Checkpoint checkpoint_;
  models::Model model_;
  models::ForeignModel foreign_ = {};  // or the weights of the graph
  FiniteValues finite_;
  std::string remark_;  // ExportResult::remark
};

}  // namespace

ExportResult export_weights(Runtime& runtime, const ExportRequest& request) {
  return Export(runtime.world(), request).run();
}

}  // namespace trireme

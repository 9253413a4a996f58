#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/printable.h"
#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/io/lfs_pointer.h"
#include "trireme/io/run_folder.h"
#include "trireme/io/safetensors.h"
#include "trireme/io/together.h"
#include "trireme/io/whole_file.h"
#include "trireme/setup/checkpoint_tokenizer.h"
#include "trireme/setup/finite_values.h"
#include "trireme/setup/found_checkpoint.h"
#include "trireme/setup/hang_limit.h"
#include "trireme/setup/memory_check.h"
#include "trireme/tasks/texts.h"
#include "trireme/weights/foreign_weights.h"

#include "weights/foreign_pieces.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kReadAtOnce = std::int64_t{1} << 20;  // elements

constexpr ExitStatus kOfImport = ExitStatus::kData;

// The folder that weights are in.
std::string folder_of(const std::string& from) {
  if (look_ahead(from, kOfImport).is_folder()) return from;
  const std::string folder = fs::path(from).parent_path().string();
  return folder.empty() ? "." : folder;
}

// Returns the config.json beside the files, as text; empty if there is none.
std::string read_config_json(Communicator& comm, const std::string& from) {
  return comm.read_once([&]() -> std::string {
    // A class takes some 50 bytes, and models of pictures may have tens of thousands.
    const std::string path = (fs::path(folder_of(from)) / "config.json").string();
    std::string text = read_if_there(path, kOfImport, std::size_t{16} << 20).value_or("");
    if (is_pointer_of_lfs(text)) {
      throw DataError(fmt::format("{}: {}", path, kWordsOnLfs));
    }
    return text;
  });
}

// Returns what config.json says of the model, and over it what was asked for.
models::ForeignRequest request_of(const std::string& config_json,
                                  const models::ModelRequest& asked) {
  if (config_json.empty()) return {asked, {}, {}};
  Json json;
  try {
    json = Json::parse_unique(config_json);
  } catch (const JsonError& error) {
    throw ConfigError(fmt::format("config.json: not JSON: {}", error.what()));
  }
  models::ForeignRequest read = models::read_foreign_config(json);
  if (read.model.family != asked.family && asked != models::ModelRequest()) {
    throw ConfigError(
        fmt::format("config.json describes a model of family {}, but model.family is {}: leave "
                    "the model keys out, they follow from config.json",
                    read.model.family, asked.family));
  }
  if (asked.keys.contains("preset")) {
    throw ConfigError(
        "config.json describes the model, and a preset would add to it what it leaves at its "
        "default: leave model.preset out");
  }
  for (const auto& [key, value] : asked.keys) read.model.keys[key] = value;
  return read;
}

models::Model resolve_imported(const models::ModelRequest& request) {
  // Checks each value as a flag's is checked.
  const Config checked =
      config_from_ini(model_to_ini(request), "the model's keys (config.json, --model.*)");
  models::find_family(request.family).check_keys(checked.model.keys);
  return models::resolve(checked.model, {});
}

class Import {
 public:
  Import(Runtime& runtime, const ImportRequest& request)
      : world_(runtime.world()),
        from_(request.from),
        files_(SafetensorsFiles::open(world_, request.from)),
        config_json_(read_config_json(world_, request.from)),
        request_(request_of(config_json_, request.model)),
        allow_nonfinite_(request.allow_nonfinite) {
    resolve();
    // From here on ranks wait for each other's files.
    const auto bytes = static_cast<std::int64_t>(held_bytes());
    runtime.set_timeout(HangLimit(request.timeout).seconds_with_checkpoint(bytes));
    if (const auto copy = differing_copy()) untie(*copy, request.model);
    match();
    check_ranks_hold(runtime, held_bytes() / world_.size(),
                     fmt::format("importing {} parameters", model_.plan.parameters));
  }

  ImportResult run(Runtime& runtime, const std::string& folder_path) {
    RunFolder folder(world_, folder_path);
    check_empty(folder);
    take_tokenizer(folder);
    pieces_ = foreign_pieces(foreign_, 0, foreign_.tensors.size(), world_.rank(), world_.size());
    read();
    const TokenizerPtr& tokenizer = tokenizer_.files.tokenizer;
    ImportResult result{.format = foreign_.format,
                        .model = model_.plan.description,
                        .parameters = model_.plan.parameters,
                        .context = model_.data.vocabulary ? model_.plan.length : 0,
                        .checkpoint = write(runtime, folder),
                        .config = folder.file("config.ini"),
                        .not_read = request_.not_read,
                        .untied = untied_,
                        .left_out = left_out_,
                        .tokenizer = tokenizer ? tokenizer->description() : "",
                        .no_tokenizer = tokenizer_.why_none,
                        .files_left_out = tokenizer_.left_out};
    world_.read_once([&] {
      try {
        write_whole_file(result.config, model_to_ini(model_.request));
      } catch (const Error&) {
        ::unlink(result.config.c_str());  // without it, the import can be repeated
        throw;
      }
      return "";
    });
    return result;
  }

 private:
  void resolve() {
    model_ = resolve_imported(request_.model);
    if (!model_.foreign) {
      throw ConfigError(fmt::format("models of family {} have no names in other programs",
                                    request_.model.family));
    }
    const bool has_types = model_.foreign_as && !request_.type.empty();
    foreign_ = has_types ? model_.foreign_as(request_.type) : model_.foreign();
    name_entries();
  }

  // Collective over the world. Returns the first tensor in the files that should be a copy of
  // another one and is not.
  std::optional<std::pair<std::string, std::string>> differing_copy() {
    for (const auto& copy : foreign_.copies) {
      const SafetensorsEntry* one = find(copy.first);
      const SafetensorsEntry* other = find(copy.second);
      if (one == nullptr || other == nullptr) continue;  // match() says what is missing
      std::int64_t equal = one->shape == other->shape ? 1 : 0;
      if (equal != 0) {
        run_together(world_, [&] { equal = share_is_equal(*one, *other) ? 1 : 0; });
        equal = world_.all_reduce_host(equal, ReduceOp::kMin);
      }
      if (equal == 0) return std::pair(one->name, other->name);
    }
    return {};
  }

  // Whether this rank's share of the elements is equal.
  bool share_is_equal(const SafetensorsEntry& one, const SafetensorsEntry& other) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : one.shape) elements *= extent;
    const std::int64_t share = elements / world_.size() + 1;
    const std::int64_t end = std::min(elements, share * (world_.rank() + 1));
    std::vector<float> a, b;
    for (std::int64_t at = share * world_.rank(); at < end; at += kReadAtOnce) {
      const std::int64_t count = std::min(kReadAtOnce, end - at);
      read_floats(one, at, count, a);
      read_floats(other, at, count, b);
      // These are compared as bits, so that NaN equals itself.
      if (a.size() != b.size() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) != 0) {
        return false;
      }
    }
    return true;
  }

  // A head that fine-tuning has moved away from the embedding is kept where the family can have
  // one, unless the user asked for a tied one.
  void untie(const std::pair<std::string, std::string>& copy, const models::ModelRequest& asked) {
    const auto was_asked = [&](const auto& key) { return asked.keys.contains(key.first); };
    if (foreign_.apart.empty() || std::ranges::any_of(foreign_.apart, was_asked)) {
      throw DataError(fmt::format("{}: {} differs from {}, which the model takes in its place",
                                  from_, shown(copy.first), shown(copy.second)));
    }
    untied_ = copy.first;
    for (const auto& [key, value] : foreign_.apart) request_.model.keys[key] = value;
    resolve();
  }

  // The bytes that all ranks hold together, in fp32.
  double held_bytes() const {
    double elements = 0.0;
    for (const models::ForeignTensor& tensor : foreign_.tensors) {
      elements += static_cast<double>(tensor.shape.elements());
    }
    return elements * sizeof(float);
  }

  // Names as transformers has them: what wraps a model in training is taken off, and a part of
  // another model becomes a model.
  std::string plain_name(std::string_view name) const {
    for (bool again = true; again;) {
      again = false;
      for (const std::string_view wrapper : {"module.", "_orig_mod."}) {
        if (!name.starts_with(wrapper)) continue;
        name.remove_prefix(wrapper.size());
        again = true;
      }
    }
    for (const auto& [theirs, here] : foreign_.other_beginnings) {
      if (name.starts_with(theirs)) return here + std::string(name.substr(theirs.size()));
    }
    return std::string(name);
  }

  const SafetensorsEntry* find_plain(const std::string& name) const {
    const auto found = entries_by_name_.find(name);
    return found == entries_by_name_.end() ? nullptr : found->second;
  }

  void name_entries() {
    entries_by_name_.clear();
    for (const SafetensorsEntry& entry : files_.tensors()) {
      const auto [other, is_new] = entries_by_name_.emplace(plain_name(entry.name), &entry);
      if (is_new) continue;
      throw DataError(fmt::format("{}: tensors {} and {} are the same one of a model", from_,
                                  shown(other->second->name), shown(entry.name)));
    }
  }

  // Finds a tensor by the name, or by that of an older file; with the prefix, or without.
  const SafetensorsEntry* find(const std::string& name) const {
    std::vector<std::string> names = {name};
    for (const auto& [ending, older] : foreign_.older_endings) {
      if (name.ends_with(ending)) {
        names.push_back(name.substr(0, name.size() - ending.size()) + older);
      }
    }
    for (const std::string& one : names) {
      if (const SafetensorsEntry* entry = find_plain(one)) return entry;
      if (foreign_.prefix.empty() || !one.starts_with(foreign_.prefix)) continue;
      const SafetensorsEntry* entry = find_plain(one.substr(foreign_.prefix.size()));
      if (entry != nullptr) return entry;
    }
    return nullptr;
  }

  // Finds each tensor of the model in the files. Nothing else may be there.
  void match() {
    std::set<const SafetensorsEntry*> used;
    for (const models::ForeignTensor& tensor : foreign_.tensors) {
      const SafetensorsEntry* entry = find(tensor.name);
      if (entry == nullptr) {
        throw DataError(fmt::format(
            "{}: holds no tensor {} {}, without which this is no {} ({}){}", from_, tensor.name,
            tensor.shape.to_string(), foreign_.format, model_.plan.description,
            config_json_.empty() ? "; no config.json says what it is, so the keys "
                                   "--model.* must"
            : is_head(tensor)    ? "; --model.tied true takes the embedding in its place"
                                 : ""));
      }
      const bool fits = std::ranges::equal(entry->shape, tensor.shape.extents());
      if (!fits) {
        throw DataError(
            fmt::format("{}: tensor {} is {}, but {} in the model ({}): model.* must "
                        "describe the model in the file",
                        files_.path_of(*entry), entry->name, entry->shape_text(),
                        tensor.shape.to_string(), model_.plan.description));
      }
      if (entry->type != "F32" && entry->type != "BF16" && entry->type != "F16") {
        throw DataError(fmt::format("{}: tensor {} is of {}: F32, BF16 and F16 can be imported",
                                    files_.path_of(*entry), entry->name, entry->type));
      }
      used.insert(entry);
      entries_.push_back(entry);
    }
    for (const SafetensorsEntry& entry : files_.tensors()) {
      const auto ends_in_one_of = [&](const std::vector<std::string>& endings) {
        return std::ranges::any_of(
            endings, [&](const std::string& ending) { return entry.name.ends_with(ending); });
      };
      if (used.contains(&entry) || ends_in_one_of(foreign_.unused) || is_copy(entry)) continue;
      const auto is_of_other_part = [&](const std::string& beginning) {
        return plain_name(entry.name).starts_with(beginning);
      };
      if (ends_in_one_of(foreign_.left_out) ||
          std::ranges::any_of(foreign_.left_out_beginnings, is_of_other_part)) {
        left_out_.push_back(entry.name);
        continue;
      }
      throw DataError(fmt::format("{}: holds a tensor {} {}, which is not in a {} ({})",
                                  files_.path_of(entry), shown(entry.name), entry.shape_text(),
                                  foreign_.format, model_.plan.description));
    }
  }

  // A head that a model can have in the embedding instead.
  bool is_head(const models::ForeignTensor& tensor) const {
    return request_.model.keys.contains("tied") &&
           std::ranges::any_of(model_.head, [&](const std::string& name) {
             return tensor.parts.front().ours == "parameters/" + name;
           });
  }

  bool is_copy(const SafetensorsEntry& entry) const {
    return std::ranges::any_of(foreign_.copies,
                               [&](const auto& copy) { return find(copy.first) == &entry; });
  }

  template <class T>
  void read_as(const SafetensorsEntry& entry, std::int64_t at, std::int64_t count,
               std::vector<float>& values) {
    std::vector<T> bytes(static_cast<std::size_t>(count));
    constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
    files_.read(entry, at * kSize, bytes.data(), count * kSize);
    values.resize(bytes.size());
    std::ranges::transform(bytes, values.begin(),
                           [](T value) { return static_cast<float>(value); });
  }

  // Reads the elements [at, at + count) of a tensor in the files.
  void read_floats(const SafetensorsEntry& entry, std::int64_t at, std::int64_t count,
                   std::vector<float>& values) {
    values.clear();  // of another type there are none
    if (entry.type == "F32") read_as<float>(entry, at, count, values);
    if (entry.type == "BF16") read_as<BFloat16>(entry, at, count, values);
    if (entry.type == "F16") read_as<Half>(entry, at, count, values);
  }

  void read() {
    FiniteValues finite;
    std::vector<float> values;
    run_together(world_, [&] {
      for (ForeignPiece& piece : pieces_) {
        piece.allocate();
        const SafetensorsEntry& entry = *entries_[piece.tensor];
        for_each_run(piece, kReadAtOnce, [&](const ForeignRun& run) {
          read_floats(entry, run.foreign, run.count, values);
          finite.look_at(entry.name, values);
          take_run(piece, run, values);
        });
      }
    });
    const std::string fault = finite.fault(world_);
    if (fault.empty() || allow_nonfinite_) return;
    throw DataError(fmt::format("{}: {}; --allow-nonfinite true takes them", from_, fault));
  }

  // Collective over the world. Happens before the long part.
  void take_tokenizer(const RunFolder& folder) {
    if (!model_.data.vocabulary) return;
    world_.read_once([&]() -> std::string {
      tokenizer_ = tokenizer_files_in(folder_of(from_));
      TokenizerFiles& files = tokenizer_.files;
      const auto vocabulary = *model_.data.vocabulary;
      if (files.tokenizer && files.tokenizer->vocabulary() > vocabulary) {
        tokenizer_.why_none = fmt::format("it has {} tokens, the model {}",
                                          files.tokenizer->vocabulary(), vocabulary);
        files.tokenizer = nullptr;
      }
      if (!files.brought.empty()) write_tokenizer_folder(folder.path(), files.brought);
      return "";
    });
  }

  void check_empty(const RunFolder& folder) {
    world_.read_once([&]() -> std::string {
      const auto is_there = [&](const char* name) {
        return look_at(folder.file(name), ExitStatus::kRunFolder).is_there();
      };
      const std::vector<CheckpointFile> checkpoints = list_checkpoints(folder.checkpoints());
      // A run that has written no checkpoint yet has a configuration all the same.
      const bool configured = is_there("config.ini");
      if (checkpoints.empty() && !configured) return "";
      // An import writes config.ini last; one that was killed before is done again.
      const bool cut = !configured && checkpoints.size() == 1 && checkpoints[0].step == 0 &&
                       !is_there("metrics.jsonl");
      if (cut) return "";
      throw RunFolderError(fmt::format("{}: holds {} already: import into a new folder",
                                       folder.path(),
                                       checkpoints.empty() ? "config.ini" : "checkpoints"));
    });
  }

  std::string write(Runtime& runtime, const RunFolder& folder) {
    CheckpointInfo info;
    info.config = model_to_ini(model_.request);
    info.extra[kImportedAttribute] = foreign_.format;
    CheckpointTexts texts;  // on rank 0
    add_tokenizer(tokenizer_.files, info, texts);
    if (tokenizer_.files.tokenizer) {
      for (const tasks::DataMark& mark : tasks::marks_of_tokens(*tokenizer_.files.tokenizer)) {
        info.extra[mark.attribute] = mark.value;
      }
    }
    std::vector<TensorSlice> slices;
    for (const ForeignPiece& piece : pieces_) slices.push_back(piece.slice);
    return write_checkpoint(world_, runtime.recorder(), folder.checkpoints(), info, slices,
                            {.generation = folder.generation(),
                             .texts = &texts,
                             .check_still_ours = [&] { folder.check_still_ours(); }});
  }

  Communicator& world_;
  const std::string from_;
  SafetensorsFiles files_;
  std::string config_json_;  // its text; empty: there is none
  models::ForeignRequest request_;
  const bool allow_nonfinite_;
  std::string untied_;  // a head that is not the embedding it was said to be
  models::Model model_;
  models::ForeignModel foreign_;
  std::map<std::string, const SafetensorsEntry*, std::less<>> entries_by_name_;  // plain_name
  std::vector<const SafetensorsEntry*> entries_;  // by tensor of the foreign model
  std::vector<std::string> left_out_;             // tensors in the files
  std::vector<ForeignPiece> pieces_;
  FoundTokenizer tokenizer_;  // on rank 0
};

}  // namespace

ImportResult import_weights(Runtime& runtime, const ImportRequest& request) {
  return Import(runtime, request).run(runtime, request.run_folder);
}

}  // namespace trireme

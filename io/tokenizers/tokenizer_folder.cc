#include "io/tokenizers/tokenizer_folder.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/byte_order_mark.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/io/lfs_pointer.h"
#include "trireme/io/tokenizer.h"

#include "io/tokenizers/huggingface_tokenizer.h"
#include "io/tokenizers/rank_file.h"
#include "io/tokenizers/sentencepiece_tokenizer.h"
#include "io/tokenizers/tokenizer_parts.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr ExitStatus kOfTokenizers = ExitStatus::kUsage;
// Where a folder has several of them, they are the same tokenizer.
constexpr std::array kNames = {"tokenizer.json",          "tekken.json",
                               "tokenizer.model",         "spiece.model",
                               "sentencepiece.bpe.model", "original/tokenizer.model"};
constexpr std::string_view kNone = "none";

// A text, of tokens also as what an object of AddedToken has as content.
std::optional<std::string> field_text(const Json& config, std::string_view key) {
  const Json* value = given(config, key);
  if (!value) return {};
  try {
    return value->is_object() ? value->at("content").text() : value->text();
  } catch (const JsonError& error) {
    throw JsonError(fmt::format("{}: {}", key, error.what()));
  }
}

// The token that a class adds before texts unless add_bos_token is false, also with a SentencePiece
// model; null: it adds none.
const char* own_begin(std::string_view class_name) {
  if (class_name.starts_with("LlamaTokenizer")) return "<s>";
  if (class_name.starts_with("GemmaTokenizer")) return "<bos>";
  return nullptr;
}

// Classes whose tokens have other numbers than the pieces of their SentencePiece models.
bool renumbers_pieces(std::string_view class_name) {
  constexpr std::array kClasses = {"XLMRoberta", "Camembert", "MBart",  "Nllb",
                                   "XGLM",       "Barthez",   "PLBart", "Pegasus"};
  return std::ranges::any_of(kClasses,
                             [&](const char* name) { return class_name.starts_with(name); });
}

// The tokenizer of a file, without begin of text.
struct Loaded {
  std::shared_ptr<Tokenizer> tokenizer;
  std::vector<std::string> before_texts;  // what the file itself says
  bool is_sentencepiece = false;
};

std::string read_model(const std::string& path) {
  // One MiB less than the limit leaves room for what is added to a SentencePiece model.
  constexpr std::size_t kMostMib = (Tokenizer::kMaxModelBytes >> 20) - 1;
  std::string model = read_small_file("the tokenizer", path, kMostMib);
  if (is_pointer_of_lfs(model)) throw DataError(fmt::format("{}: {}", path, kWordsOnLfs));
  return model;
}

// With the end that is named, or else with the one that the configuration says.
Loaded load_model(std::string model, const std::string& path, const TokenizerConfig& config,
                  const DocumentTokens& named) {
  if (model.empty()) throw DataError(fmt::format("{}: the tokenizer model is empty", path));
  const bool is_named = !named.end_of_text.empty();
  // A SentencePiece model begins with the mark of its first field.
  if (model.front() == '{' || path.ends_with(".json") || is_tiktoken_file(model)) {
    using EndBy = HuggingFaceTokenizer::EndBy;
    auto made = std::make_shared<HuggingFaceTokenizer>(
        std::move(model), is_named ? named.end_of_text : config.end.value_or(""), path,
        is_named || (named.have_flags && !config.end) ? EndBy::kUser : EndBy::kOtherFile);
    return {made, made->before_texts(), false};
  }
  if (renumbers_pieces(config.class_name)) {
    throw DataError(
        fmt::format("{}: {} gives its pieces other numbers; AutoTokenizer.from_pretrained(FOLDER)"
                    ".save_pretrained(FOLDER) of transformers makes a tokenizer.json with them",
                    path, shown(config.class_name)));
  }
  const std::string end = is_named ? named.end_of_text : config.end.value_or("");
  return {load_sentencepiece(std::move(model), end, path), {}, true};
}

std::string way_to_begin(const DocumentTokens& named) {
  return named.have_flags ? "--begin-of-text TOKEN names one, or none"
                          : fmt::format("add_bos_token false in a {} beside it takes none",
                                        kTokenizerConfigName);
}

std::int32_t token_named(const Tokenizer& tokenizer, const std::string& name,
                         const DocumentTokens& named, const std::string& path) {
  if (const auto token = tokenizer.special_token(name)) return *token;
  constexpr std::size_t kMostNames = 8;
  std::vector<std::string> names;
  for (const auto& [known, token] : tokenizer.special_tokens()) {
    names.push_back(names.size() < kMostNames ? shown(known) : "...");
    if (names.size() > kMostNames) break;
  }
  throw DataError(
      fmt::format("{}: '{}' is none of its special tokens ({}), so it cannot begin texts: {}", path,
                  shown(name), fmt::join(names, ", "), way_to_begin(named)));
}

std::optional<std::int32_t> begin_of_text(const Loaded& loaded, const TokenizerConfig& config,
                                          const DocumentTokens& named, const std::string& path) {
  const Tokenizer& tokenizer = *loaded.tokenizer;
  if (named.begin_of_text == kNone) return {};
  if (!named.begin_of_text.empty()) {
    return token_named(tokenizer, named.begin_of_text, named, path);
  }
  const bool has_template = !loaded.before_texts.empty();
  if (config.adds_begin && !*config.adds_begin) return {};
  if (config.adds_begin && (loaded.is_sentencepiece || !has_template)) {
    if (!config.begin) {
      throw DataError(fmt::format("{}: the {} beside it has add_bos_token, but no bos_token: {}",
                                  path, kTokenizerConfigName, way_to_begin(named)));
    }
    return token_named(tokenizer, *config.begin, named, path);
  }
  if (!has_template || loaded.before_texts.front() == "[CLS]") return {};
  if (loaded.before_texts.size() > 1) {
    throw DataError(fmt::format("{}: its post-processor puts several tokens before a text ({}): {}",
                                path, fmt::join(loaded.before_texts, ", "), way_to_begin(named)));
  }
  return token_named(tokenizer, loaded.before_texts.front(), named, path);
}

TokenizerPtr made_tokenizer(std::string model, const std::string& path,
                            const TokenizerConfig& config, const DocumentTokens& named) {
  const Loaded loaded = load_model(std::move(model), path, config, named);
  loaded.tokenizer->set_begin_of_text(begin_of_text(loaded, config, named, path), path);
  return loaded.tokenizer;
}

}  // namespace

std::optional<std::string> tokenizer_in_folder(const std::string& folder) {
  for (const char* name : kNames) {
    const std::string path = (fs::path(folder) / name).string();
    if (look_ahead(path, kOfTokenizers).is_file()) return path;
  }
  return {};
}

TokenizerPtr tokenizer_of_files(const std::map<std::string, std::string>& files) {
  const auto config = files.find(kTokenizerConfigName);
  for (const char* name : kNames) {
    const auto found = files.find(name);
    if (found == files.end()) continue;
    return made_tokenizer(std::string(without_byte_order_mark(found->second)), name,
                          config == files.end()
                              ? TokenizerConfig()
                              : parse_tokenizer_config(config->second, kTokenizerConfigName),
                          {});
  }
  return nullptr;
}

TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& origin) {
  if (is_pointer_of_lfs(text)) throw DataError(fmt::format("{}: {}", origin, kWordsOnLfs));
  try {
    const Json json = Json::parse(text);
    json.members();  // throws unless it is an object
    TokenizerConfig config{field_text(json, "bos_token"),
                           field_text(json, "eos_token"),
                           {},
                           field_text(json, "tokenizer_class").value_or("")};
    const char* own = own_begin(config.class_name);
    if (given(json, "add_bos_token")) {
      config.adds_begin = flag(json, "add_bos_token", false);
    } else if (own) {
      config.adds_begin = true;
    }
    if (own && !json.find("bos_token")) config.begin = own;
    return config;
  } catch (const JsonError& error) {
    throw DataError(fmt::format("{}: not a {} that is read: {}", origin, kTokenizerConfigName,
                                shown(error.what())));
  }
}

TokenizerPtr load_tokenizer(const std::string& path, const DocumentTokens& named) {
  std::string file = path;
  if (look_ahead(path, kOfTokenizers).is_folder()) {
    auto found = tokenizer_in_folder(path);
    const std::string of_run = (fs::path(path) / "tokenizer").string();
    if (!found && look_ahead(of_run, kOfTokenizers).is_folder()) {
      found = tokenizer_in_folder(of_run);
    }
    if (!found) {
      const bool has_parts =
          look_ahead((fs::path(path) / "vocab.json").string(), kOfTokenizers).is_file();
      throw ConfigError(fmt::format(
          "{}: the folder holds no tokenizer (tokenizer.json, tekken.json or tokenizer.model){}",
          path,
          has_parts ? "; transformers makes a tokenizer.json of its vocab.json: "
                      "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
                    : ""));
    }
    file = *found;
  }
  const std::string config_path = (fs::path(file).parent_path() / kTokenizerConfigName).string();
  TokenizerConfig config;
  if (const auto text = read_if_there(config_path, kOfTokenizers, std::size_t{16} << 20)) {
    config = parse_tokenizer_config(*text, config_path);
  }
  return made_tokenizer(read_model(file), file, config, named);
}

}  // namespace trireme

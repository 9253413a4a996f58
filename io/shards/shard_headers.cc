#include "io/shards/shard_headers.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <stdexcept>

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/caught.h"
#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"

namespace trireme {
namespace {

constexpr double kLeastWeight = 1e-6, kMostWeight = 1e6;

// What differs between the kinds of shards.
template <class Info>
struct ShardKind;

template <class Info, class Value>
void check_equal(const Info& a, const Info& b, const char* what, const Value& left,
                 const Value& right) {
  if (left == right) return;
  throw DataError(fmt::format("{} and {} cannot be used together: {} {} and {}", a.path, b.path,
                              what, left, right));
}

template <>
struct ShardKind<TokenShardInfo> {
  static TokenShardInfo read(const std::string& path) { return read_token_shard_info(path); }
  static void check_alike(const TokenShardInfo& a, const TokenShardInfo& b) {
    check_equal(a, b, "vocabularies of", a.vocabulary, b.vocabulary);
    check_equal(a, b, "bytes per token:", a.token_bytes, b.token_bytes);
    check_equal(a, b, "end of text is", a.end_of_text, b.end_of_text);
    check_equal(a, b, "begin of text is", begin_text(a), begin_text(b));
    check_equal(a, b, "tokenizers", a.tokenizer_kind, b.tokenizer_kind);
    if (a.tokenizer_model != b.tokenizer_model) {
      throw DataError(
          fmt::format("{} and {} cannot be used together: their tokenizers are two "
                      "models of one kind ({})",
                      a.path, b.path, a.tokenizer_kind));
    }
  }
  static Json to_json(const TokenShardInfo& info) {
    return Json::array({info.path, info.format_version, info.has_record, info.token_bytes,
                        info.tokens, info.documents, info.original_bytes, info.data_offset,
                        info.checksum_offset, info.vocabulary, info.end_of_text,
                        info.begin_of_text.value_or(-1), info.tokenizer_kind, info.source,
                        info.split, info.checksum});
  }
  static std::string begin_text(const TokenShardInfo& info) {
    return info.begin_of_text ? std::to_string(*info.begin_of_text) : "none";
  }
  static TokenShardInfo from_json(const Json& json) {
    TokenShardInfo info;
    std::size_t at = 0;
    const auto next = [&]() -> const Json& { return json.at(at++); };
    info.path = next().text();
    info.format_version = next().integer();
    info.has_record = next().boolean();
    info.token_bytes = next().integer();
    info.tokens = next().integer();
    info.documents = next().integer();
    info.original_bytes = next().integer();
    info.data_offset = next().integer();
    info.checksum_offset = next().integer();
    info.vocabulary = next().integer();
    info.end_of_text = next().integer();
    const std::int64_t begin = next().integer();
    if (begin >= 0) info.begin_of_text = static_cast<std::int32_t>(begin);
    info.tokenizer_kind = next().text();
    info.source = next().text();
    info.split = next().text();
    info.checksum = next().text();
    return info;
  }
  // What all shards have in common is sent once.
  static Json common(const TokenShardInfo& info) { return info.tokenizer_model; }
  static void take_common(TokenShardInfo& info, const Json& json) {
    info.tokenizer_model = json.text();
  }
  static std::int64_t count(const TokenShardInfo& info) { return info.tokens; }
  static std::string counts(const std::vector<const TokenShardInfo*>& shards) {
    std::int64_t tokens = 0, documents = 0;
    for (const TokenShardInfo* info : shards) {
      tokens += info->tokens;
      documents += info->documents;
    }
    return fmt::format("tokens {}, documents {}", tokens, documents);
  }
};

template <>
struct ShardKind<ImageShardInfo> {
  static ImageShardInfo read(const std::string& path) { return read_image_shard_info(path); }
  static void check_alike(const ImageShardInfo& a, const ImageShardInfo& b) {
    const auto size = [](const ImageShardInfo& info) {
      return fmt::format("{} x {}", info.size.height, info.size.width);
    };
    check_equal(a, b, "pictures of", size(a), size(b));
    check_equal(a, b, "numbers of classes", a.classes.size(), b.classes.size());
    for (std::size_t i = 0; i < a.classes.size(); ++i) {
      check_equal(a, b, fmt::format("class {} is", i).c_str(), a.classes[i], b.classes[i]);
    }
  }
  static Json to_json(const ImageShardInfo& info) {
    const auto& [mean, deviation] = info.statistics;
    return Json::array({info.path, info.format_version, info.has_record, info.images,
                        info.size.height, info.size.width, mean[0], mean[1], mean[2], deviation[0],
                        deviation[1], deviation[2], info.images_offset, info.labels_offset,
                        info.checksums_offset, info.source, info.split, info.checksum});
  }
  static ImageShardInfo from_json(const Json& json) {
    ImageShardInfo info;
    std::size_t at = 0;
    const auto next = [&]() -> const Json& { return json.at(at++); };
    info.path = next().text();
    info.format_version = next().integer();
    info.has_record = next().boolean();
    info.images = next().integer();
    info.size.height = next().integer();
    info.size.width = next().integer();
    for (double& value : info.statistics.mean) value = next().number();
    for (double& value : info.statistics.deviation) value = next().number();
    info.images_offset = next().integer();
    info.labels_offset = next().integer();
    info.checksums_offset = next().integer();
    info.source = next().text();
    info.split = next().text();
    info.checksum = next().text();
    return info;
  }
  static Json common(const ImageShardInfo& info) {
    Json classes = Json::array();
    for (const std::string& name : info.classes) classes.push_back(name);
    return classes;
  }
  static void take_common(ImageShardInfo& info, const Json& json) {
    for (const Json& name : json.items()) info.classes.push_back(name.text());
  }
  static std::int64_t count(const ImageShardInfo& info) { return info.images; }
  static std::string counts(const std::vector<const ImageShardInfo*>& shards) {
    std::int64_t images = 0;
    for (const ImageShardInfo* info : shards) images += info->images;
    return fmt::format("pictures {}", images);
  }
};

template <class Info>
std::vector<Info> shards_of(const std::string& path, const std::string& split) {
  const bool folder = look_ahead(path, ExitStatus::kData).is_folder();
  std::vector<Info> shards;
  for (const std::string& file : token_shard_files(path)) {
    Info info = ShardKind<Info>::read(file);
    if (!folder || split.empty() || info.split == split) shards.push_back(std::move(info));
  }
  if (shards.empty()) {
    throw DataError(
        fmt::format("{}: the folder holds no shards (*.h5) of the split '{}'", path, split));
  }
  return shards;
}

}  // namespace

std::vector<std::uint64_t> whole_weights(std::span<const WeightedPath> paths) {
  const auto weight_of = [](const WeightedPath& path) { return path.weight.value_or(1.0); };
  for (const WeightedPath& path : paths) {
    const double weight = weight_of(path);
    if (!(weight >= kLeastWeight && weight <= kMostWeight)) {
      throw ConfigError(fmt::format("data '{}': a weight of {}; expected {} to {}", path.path,
                                    weight, kLeastWeight, kMostWeight));
    }
  }
  const auto whole = [&](double scale) {
    return std::all_of(paths.begin(), paths.end(), [&](const WeightedPath& path) {
      const double scaled = weight_of(path) * scale;
      return std::abs(scaled - std::round(scaled)) <= 1e-9 * scaled;
    });
  };
  double scale = 1.0;
  while (!whole(scale) && scale * kLeastWeight < 1.0) scale *= 10.0;
  std::vector<std::uint64_t> weights;
  for (const WeightedPath& path : paths) {
    weights.push_back(static_cast<std::uint64_t>(std::round(weight_of(path) * scale)));
  }
  return weights;
}

template <class Info>
ShardHeaders<Info> read_shard_headers(const std::vector<WeightedPath>& data,
                                      const std::string& split) {
  if (data.empty()) throw ConfigError("data: no path is given");
  const std::vector<std::uint64_t> weights = whole_weights(data);
  const bool mixed = std::any_of(data.begin(), data.end(),
                                 [](const WeightedPath& path) { return path.weight.has_value(); });
  ShardHeaders<Info> headers;
  for (std::size_t i = 0; i < data.size(); ++i) {
    if (mixed || headers.parts.empty()) headers.parts.push_back({weights[i], {}});
    for (Info& info : shards_of<Info>(data[i].path, split)) {
      headers.parts.back().shards.push_back(headers.shards.size());
      headers.shards.push_back(std::move(info));
    }
  }
  for (const Info& info : headers.shards) {
    ShardKind<Info>::check_alike(headers.shards.front(), info);
  }
  return headers;
}

template <class Info>
std::string pack_shard_headers(const std::vector<WeightedPath>& data, const std::string& split) {
  Json json;
  try {
    const ShardHeaders<Info> headers = read_shard_headers<Info>(data, split);
    for (const DataPart& part : headers.parts) {
      Json shards = Json::array();
      for (const std::size_t shard : part.shards) shards.push_back(shard);
      json["parts"].push_back(Json::array({part.weight, std::move(shards)}));
    }
    for (const Info& info : headers.shards) {
      json["shards"].push_back(ShardKind<Info>::to_json(info));
    }
    json["common"] = ShardKind<Info>::common(headers.shards.front());
  } catch (const std::logic_error& error) {  // a size that no container can have
    const std::string where = data.empty() ? "data" : data.front().path;
    json = Json::object({{"error", fmt::format("{}: {}", where, error.what())},
                         {"status", static_cast<int>(ExitStatus::kData)}});
  } catch (...) {
    const Error error = caught(std::current_exception());
    json = Json::object({{"error", error.what()}, {"status", static_cast<int>(error.status())}});
  }
  return json.to_cbor();
}

template <class Info>
ShardHeaders<Info> unpack_shard_headers(const std::string& packed) {
  const Json json = Json::from_cbor(packed);
  if (const Json* error = json.find("error")) {
    rethrow(static_cast<ExitStatus>(json.at("status").small_integer()), error->text());
  }
  ShardHeaders<Info> headers;
  for (const Json& part : json.at("parts").items()) {
    headers.parts.push_back({part.at(0).unsigned_integer(), {}});
    for (const Json& shard : part.at(1).items()) {
      headers.parts.back().shards.push_back(shard.unsigned_integer());
    }
  }
  for (const Json& shard : json.at("shards").items()) {
    headers.shards.push_back(ShardKind<Info>::from_json(shard));
    ShardKind<Info>::take_common(headers.shards.back(), json.at("common"));
  }
  return headers;
}

template <class Info>
std::string contents_of(const ShardHeaders<Info>& headers) {
  std::string text;
  for (const DataPart& part : headers.parts) {
    std::string checksums;
    std::vector<const Info*> shards;
    for (const std::size_t number : part.shards) {
      shards.push_back(&headers.shards[number]);
      checksums +=
          fmt::format("{} {}\n", ShardKind<Info>::count(*shards.back()), shards.back()->checksum);
    }
    text +=
        fmt::format("weight {}, shards {}, {}, xxh64:{:016x}\n", part.weight, shards.size(),
                    ShardKind<Info>::counts(shards), XXH64(checksums.data(), checksums.size(), 0));
  }
  return text;
}

template ShardHeaders<TokenShardInfo> read_shard_headers(const std::vector<WeightedPath>&,
                                                         const std::string&);
template ShardHeaders<ImageShardInfo> read_shard_headers(const std::vector<WeightedPath>&,
                                                         const std::string&);
template std::string pack_shard_headers<TokenShardInfo>(const std::vector<WeightedPath>&,
                                                        const std::string&);
template std::string pack_shard_headers<ImageShardInfo>(const std::vector<WeightedPath>&,
                                                        const std::string&);
template ShardHeaders<TokenShardInfo> unpack_shard_headers(const std::string&);
template ShardHeaders<ImageShardInfo> unpack_shard_headers(const std::string&);
template std::string contents_of(const ShardHeaders<TokenShardInfo>&);
template std::string contents_of(const ShardHeaders<ImageShardInfo>&);

}  // namespace trireme

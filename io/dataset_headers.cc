#include "dataset_headers.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr double kLeastWeight = 1e-6, kMostWeight = 1e6;

std::vector<TokenShardInfo> shards_of(const std::string& path, const std::string& split) {
  std::error_code error;
  const bool folder = fs::is_directory(path, error);
  std::vector<TokenShardInfo> shards;
  for (const std::string& file : token_shard_files(path)) {
    TokenShardInfo info = read_token_shard_info(file);
    if (!folder || split.empty() || info.split == split) shards.push_back(std::move(info));
  }
  if (shards.empty()) {
    throw DataError(
        fmt::format("{}: the folder holds no shards (*.h5) of the split '{}'", path, split));
  }
  return shards;
}

void check_alike(const TokenShardInfo& a, const TokenShardInfo& b) {
  const auto differ = [&](const char* what, const auto& left, const auto& right) {
    throw DataError(fmt::format("{} and {} cannot be used together: {} {} and {}", a.path, b.path,
                                what, left, right));
  };
  if (a.vocabulary != b.vocabulary) differ("vocabularies of", a.vocabulary, b.vocabulary);
  if (a.token_bytes != b.token_bytes) differ("bytes per token:", a.token_bytes, b.token_bytes);
  if (a.end_of_text != b.end_of_text) differ("end of text is", a.end_of_text, b.end_of_text);
  if (a.tokenizer_kind != b.tokenizer_kind) {
    differ("tokenizers", a.tokenizer_kind, b.tokenizer_kind);
  }
  if (a.tokenizer_model != b.tokenizer_model) {
    throw DataError(
        fmt::format("{} and {} cannot be used together: their tokenizers are two "
                    "models of one kind ({})",
                    a.path, b.path, a.tokenizer_kind));
  }
}

Json to_json(const TokenShardInfo& info) {
  return Json::array({info.path, info.format_version, info.has_record, info.token_bytes,
                      info.tokens, info.documents, info.original_bytes, info.data_offset,
                      info.checksum_offset, info.vocabulary, info.end_of_text, info.tokenizer_kind,
                      info.source, info.split, info.checksum});
}

TokenShardInfo from_json(const Json& json) {
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
  info.tokenizer_kind = next().text();
  info.source = next().text();
  info.split = next().text();
  info.checksum = next().text();
  return info;
}

}  // namespace

std::vector<std::uint64_t> whole_weights(std::span<const WeightedPath> paths) {
  for (const WeightedPath& path : paths) {
    if (!(path.weight >= kLeastWeight && path.weight <= kMostWeight)) {
      throw ConfigError(fmt::format("data '{}': a weight of {}; expected {} to {}", path.path,
                                    path.weight, kLeastWeight, kMostWeight));
    }
  }
  const auto whole = [&](double scale) {
    return std::all_of(paths.begin(), paths.end(), [scale](const WeightedPath& path) {
      const double scaled = path.weight * scale;
      return std::abs(scaled - std::round(scaled)) <= 1e-9 * scaled;
    });
  };
  double scale = 1.0;
  while (!whole(scale) && scale * kLeastWeight < 1.0) scale *= 10.0;
  std::vector<std::uint64_t> weights;
  for (const WeightedPath& path : paths) {
    weights.push_back(static_cast<std::uint64_t>(std::round(path.weight * scale)));
  }
  return weights;
}

DatasetHeaders read_dataset_headers(const DatasetOptions& options) {
  if (options.data.empty()) throw ConfigError("data: no path is given");
  const std::vector<std::uint64_t> weights = whole_weights(options.data);
  const bool mixed = std::any_of(options.data.begin(), options.data.end(),
                                 [](const WeightedPath& path) { return path.weight != 1.0; });
  DatasetHeaders headers;
  for (std::size_t i = 0; i < options.data.size(); ++i) {
    if (mixed || headers.parts.empty()) headers.parts.push_back({weights[i], {}});
    for (TokenShardInfo& info : shards_of(options.data[i].path, options.split)) {
      headers.parts.back().shards.push_back(headers.shards.size());
      headers.shards.push_back(std::move(info));
    }
  }
  for (const TokenShardInfo& info : headers.shards) check_alike(headers.shards.front(), info);
  return headers;
}

std::string pack_headers(const DatasetOptions& options) {
  Json json;
  try {
    const DatasetHeaders headers = read_dataset_headers(options);
    for (const auto& part : headers.parts) {
      Json shards = Json::array();
      for (const std::size_t shard : part.shards) shards.push_back(shard);
      json["parts"].push_back(Json::array({part.weight, std::move(shards)}));
    }
    for (const auto& info : headers.shards) json["shards"].push_back(to_json(info));
    json["model"] = headers.shards.front().tokenizer_model;  // the same in all shards
  } catch (const Error& error) {
    json = Json::object({{"error", error.what()}, {"status", static_cast<int>(error.status())}});
  } catch (const std::exception& error) {
    const std::string where = options.data.empty() ? "data" : options.data.front().path;
    json = Json::object({{"error", fmt::format("{}: {}", where, error.what())},
                         {"status", static_cast<int>(ExitStatus::kData)}});
  }
  return json.to_cbor();
}

DatasetHeaders unpack_headers(const std::string& packed) {
  const Json json = Json::from_cbor(packed);
  if (const Json* error = json.find("error")) {
    rethrow(static_cast<ExitStatus>(json.at("status").small_integer()), error->text());
  }
  DatasetHeaders headers;
  for (const Json& part : json.at("parts").items()) {
    headers.parts.push_back({part.at(0).unsigned_integer(), {}});
    for (const Json& shard : part.at(1).items()) {
      headers.parts.back().shards.push_back(shard.unsigned_integer());
    }
  }
  for (const Json& shard : json.at("shards").items()) {
    headers.shards.push_back(from_json(shard));
    headers.shards.back().tokenizer_model = json.at("model").text();
  }
  return headers;
}

}  // namespace trireme

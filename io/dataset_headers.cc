#include "dataset_headers.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A decimal number, exactly: digits * 10^-decimals.
struct Decimal {
  std::uint64_t digits = 0;
  int decimals = 0;
};

constexpr std::size_t kMaxDigits = 9;

bool parse_decimal(std::string_view text, Decimal& value) {
  value = {};
  bool has_point = false;
  std::size_t digits = 0;
  for (const char c : text) {
    if (c == '.' && !has_point) {
      has_point = true;
    } else if (c >= '0' && c <= '9' && digits < kMaxDigits) {
      value.digits = value.digits * 10 + static_cast<std::uint64_t>(c - '0');
      value.decimals += has_point;
      ++digits;
    } else {
      return false;
    }
  }
  return digits > 0;
}

std::vector<std::string> shards_in_folder(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && entry.path().extension() == ".h5") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::vector<TokenShardInfo> shards_of(const std::string& path, const std::string& split) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {read_token_shard_info(path)};
  std::vector<TokenShardInfo> shards;
  for (const std::string& file : shards_in_folder(path)) {
    TokenShardInfo info = read_token_shard_info(file);
    if (split.empty() || info.split == split) shards.push_back(std::move(info));
  }
  if (shards.empty()) {
    throw DataError(
        split.empty()
            ? fmt::format("{}: the folder holds no shards (*.h5)", path)
            : fmt::format("{}: the folder holds no shards (*.h5) of the split '{}'", path, split));
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
  return Json::array({info.path, info.token_bytes, info.tokens, info.documents, info.original_bytes,
                      info.data_offset, info.vocabulary, info.end_of_text, info.tokenizer_kind,
                      info.source, info.split, info.checksum});
}

TokenShardInfo from_json(const Json& json) {
  TokenShardInfo info;
  std::size_t at = 0;
  const auto take = [&](auto& member) { json.at(at++).get_to(member); };
  take(info.path), take(info.token_bytes), take(info.tokens), take(info.documents);
  take(info.original_bytes), take(info.data_offset), take(info.vocabulary), take(info.end_of_text);
  take(info.tokenizer_kind), take(info.source), take(info.split), take(info.checksum);
  return info;
}

}  // namespace

std::vector<DatasetEntry> parse_dataset_list(const std::string& data) {
  std::vector<DatasetEntry> entries;
  std::vector<Decimal> weights;
  for (std::size_t begin = 0; begin <= data.size();) {
    const std::size_t end = std::min(data.find(',', begin), data.size());
    const std::string entry = data.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t colon = entry.rfind(':');
    Decimal weight;
    const bool weighted = colon != std::string::npos &&
                          parse_decimal(std::string_view(entry).substr(colon + 1), weight);
    entries.push_back({weighted ? entry.substr(0, colon) : entry, 0});
    if (entries.back().path.empty()) {
      throw ConfigError(fmt::format("data '{}': expected paths, separated by commas", data));
    }
    if (!weighted) continue;
    if (weight.digits == 0) throw ConfigError(fmt::format("data '{}': a weight of zero", data));
    weights.push_back(weight);
  }
  if (weights.empty()) return entries;
  if (weights.size() != entries.size()) {
    throw ConfigError(
        fmt::format("data '{}': give every path a weight (PATH:0.7) or none of them", data));
  }
  int decimals = 0;
  for (const Decimal& weight : weights) decimals = std::max(decimals, weight.decimals);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    entries[i].weight = weights[i].digits;
    for (int d = weights[i].decimals; d < decimals; ++d) entries[i].weight *= 10;
  }
  return entries;
}

DatasetHeaders read_dataset_headers(const DatasetOptions& options) {
  const std::vector<DatasetEntry> entries = parse_dataset_list(options.data);
  const bool mixed = entries.front().weight > 0;
  DatasetHeaders headers;
  for (const DatasetEntry& entry : entries) {
    if (mixed || headers.parts.empty()) {
      headers.parts.push_back({std::max<std::uint64_t>(entry.weight, 1), {}});
    }
    for (TokenShardInfo& info : shards_of(entry.path, options.split)) {
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
    for (const auto& part : headers.parts) json["parts"].push_back({part.weight, part.shards});
    for (const auto& info : headers.shards) json["shards"].push_back(to_json(info));
    const std::string& model = headers.shards.front().tokenizer_model;  // the same in all
    json["model"] = Json::binary({model.begin(), model.end()});
  } catch (const Error& error) {
    json = {{"error", error.what()}, {"status", static_cast<int>(error.status())}};
  } catch (const std::exception& error) {
    json = {{"error", fmt::format("{}: {}", options.data, error.what())},
            {"status", static_cast<int>(ExitStatus::kData)}};
  }
  const std::vector<std::uint8_t> bytes = Json::to_cbor(json);
  return {bytes.begin(), bytes.end()};
}

DatasetHeaders unpack_headers(const std::string& packed) {
  const Json json = Json::from_cbor(packed.begin(), packed.end());
  if (json.contains("error")) {
    const std::string what = json["error"].get<std::string>();
    switch (const auto status = static_cast<ExitStatus>(json["status"].get<int>())) {
      case ExitStatus::kData:
        throw DataError(what);
      case ExitStatus::kUsage:
        throw ConfigError(what);
      default:
        throw Error(status, what);
    }
  }
  DatasetHeaders headers;
  for (const Json& part : json["parts"]) {
    headers.parts.push_back(
        {part.at(0).get<std::uint64_t>(), part.at(1).get<std::vector<std::size_t>>()});
  }
  const auto& model = json["model"].get_binary();
  for (const Json& shard : json["shards"]) {
    headers.shards.push_back(from_json(shard));
    headers.shards.back().tokenizer_model.assign(model.begin(), model.end());
  }
  return headers;
}

}  // namespace trireme

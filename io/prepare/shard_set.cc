#include "io/prepare/shard_set.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/node_names.h"
#include "trireme/base/text.h"

#include "io/prepare/prepared_shards.h"
#include "io/shards/shard_file.h"
#include "io/shards/token_shard_contents.h"
#include "io/shards/token_shard_format.h"

namespace trireme {
namespace {

std::vector<std::string> names_of_set(const PrepareOptions& options) {
  std::vector<std::string> names = {kValidationShard};
  if (options.shards > 1) names.emplace_back(kTrainShard);  // of an earlier set
  for (std::string& name : train_shard_names(options.shards)) names.push_back(std::move(name));
  return names;
}

std::uint64_t documents_of(const TokenShardContents& contents) {
  std::uint64_t documents = 0;
  for (const TokenStretch& stretch : contents.stretches) documents += stretch.documents;
  return documents;
}

std::uint64_t tokens_of(const TokenShardContents& contents) {
  std::uint64_t tokens = 0;
  for (const TokenStretch& stretch : contents.stretches) tokens += stretch.tokens;
  return tokens;
}

// Place p of `parts` places that divide `all` evenly.
std::uint64_t share(std::uint64_t all, std::uint64_t p, std::uint64_t parts) {
  return all / parts * p + all % parts * p / parts;
}

SpooledText::Place earlier(const SpooledText::Place& a, const SpooledText::Place& b) {
  return std::tie(a.stretch, a.token) < std::tie(b.stretch, b.token) ? a : b;
}

}  // namespace

ShardSet::ShardSet(const PrepareOptions& options, PrepareRanks& ranks)
    : options_(options), ranks_(ranks), train_names_(train_shard_names(options.shards)) {
  const std::string lock = ranks.read_once([&]() -> std::string {
    folder_.emplace(options.output, names_of_set(options));
    return ranks_.alone() ? "" : read_file(folder_->lock(), ExitStatus::kRunFolder);
  });
  const std::string levels =
      ranks.read_once([&] { return std::to_string(folder_->made().levels()); });
  ranks.together([&] {
    if (ranks_.rank() == 0) return;
    check_is_shared(lock);
    made_.emplace(options.output, std::stoul(levels));
  });
}

// The first rank's note in the folder is there for all, but on some file systems not at once.
void ShardSet::check_is_shared(const std::string& lock) const {
  const auto until = std::chrono::steady_clock::now() + file_patience();
  const std::string path = lock_of_set(options_.output);
  while (true) {
    const bool is_there = look_ahead(path, ExitStatus::kRunFolder).is_there();
    if (is_there && read_if_there(path, ExitStatus::kRunFolder) == lock) return;
    if (std::chrono::steady_clock::now() > until) {
      throw RunFolderError(fmt::format(
          "{}: on {} it is not the folder that the first rank writes to: give a folder that all "
          "nodes share",
          options_.output, host_name()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

std::string ShardSet::path(std::string_view name) const {
  return fmt::format("{}/{}", options_.output, name);
}

// A name by which SetFolder removes what a killed process has left.
std::string ShardSet::spool_path(const char* side) const {
  return fmt::format("{}.{}", path(train_names_.back()), side);
}

void ShardSet::open(const TokenizerPtr& tokenizer) {
  tokenizer_ = tokenizer;
  const int bytes = token_bytes_of(*tokenizer);
  train_.emplace(spool_path("train"), ranks_.rank(), bytes);
  if (options_.validation.rule == ValidationSplit::Rule::kNone) return;
  validation_.emplace(spool_path("validation"), ranks_.rank(), bytes);
}

void ShardSet::append(const BatchTokens& batch) {
  train_->append(batch.train);
  if (validation_) validation_->append(batch.validation);
}

std::uint64_t ShardSet::tokens() const {
  return (train_ ? train_->tokens() : 0) + (validation_ ? validation_->tokens() : 0);
}

ShardSet::Stretches ShardSet::take() {
  return {train_->take(), validation_ ? validation_->take() : SpooledStretch()};
}

void ShardSet::flush() {
  train_->flush(!ranks_.alone());
  if (validation_) validation_->flush(!ranks_.alone());
}

SpooledText ShardSet::train(std::vector<SpooledStretch> stretches) const {
  return {spool_path("train"), std::move(stretches)};
}

SpooledText ShardSet::validation(std::vector<SpooledStretch> stretches) const {
  return {spool_path("validation"), std::move(stretches)};
}

TokenShardContents ShardSet::contents_of(const ShardSide& side, const char* split) const {
  TokenShardContents contents{.tokenizer = tokenizer_,
                              .split = split,
                              .source = fmt::format("{}", fmt::join(options_.inputs, ", ")),
                              .original_bytes = 0,
                              .stretches = {}};
  side.text.put(side.from, side.to, contents);
  return contents;
}

void ShardSet::check_sides(std::uint64_t train, std::optional<std::uint64_t> validation,
                           const std::string& nothing, const std::string& size) const {
  if (train + validation.value_or(0) == 0) throw DataError(nothing);
  if (train == 0) {
    throw DataError(
        fmt::format("the validation split takes all of the text ({}), nothing "
                    "is left to train on",
                    size));
  }
  if (validation == 0) {
    throw DataError(
        fmt::format("hash:{} draws none of the {} documents for validation; "
                    "tail:BYTES holds out a part of the text",
                    options_.validation.fraction, train));
  }
}

// From the first document that begins where an even share does, or behind that.
ShardSide ShardSet::part_of(const ShardSide& train, std::uint64_t tokens, std::int64_t part) const {
  const auto parts = static_cast<std::uint64_t>(options_.shards);
  const auto place = [&](std::uint64_t p) {
    if (p == 0) return train.from;
    if (p == parts) return train.to;
    return earlier(train.text.first_document_from_token(share(tokens, p, parts)), train.to);
  };
  const auto p = static_cast<std::uint64_t>(part);
  return {train.text, place(p), place(p + 1)};
}

PrepareResult ShardSet::write(const ShardSide& train, const std::optional<ShardSide>& validation,
                              const std::string& nothing, const std::string& size) {
  std::vector<std::unique_ptr<ShardFile>> files;  // go, if not all get their names
  const auto write = [&](const char* name, const TokenShardContents& contents) {
    files.push_back(std::make_unique<ShardFile>(path(name)));
    files.back()->write([&](hdf5::File& file) { write_token_shard(file, contents); });
    files.back()->finish(kTokenShardData);
  };
  // The files in turn, the held-out data behind the others.
  const auto is_mine = [&](std::int64_t file) { return file % ranks_.size() == ranks_.rank(); };
  ranks_.together([&] {
    const TokenShardContents all = contents_of(train, "train");
    std::optional<TokenShardContents> held_out;
    if (validation) held_out = contents_of(*validation, "validation");
    check_sides(documents_of(all), held_out ? std::optional(documents_of(*held_out)) : std::nullopt,
                nothing, size);
    for (std::int64_t part = 0; part < options_.shards; ++part) {
      if (!is_mine(part)) continue;
      const std::string& name = train_names_[static_cast<std::size_t>(part)];
      if (options_.shards == 1) {
        write(name.c_str(), all);
        continue;
      }
      const TokenShardContents own = contents_of(part_of(train, tokens_of(all), part), "train");
      if (own.stretches.empty()) {
        throw DataError(fmt::format(
            "--shards {}: {}, too few or too long: each is in one shard, and none would "
            "begin in {}",
            options_.shards, counted(static_cast<std::int64_t>(documents_of(all)), "document"),
            name));
      }
      write(name.c_str(), own);
    }
    if (held_out && is_mine(options_.shards)) write(kValidationShard, *held_out);
  });
  train_.reset();
  validation_.reset();
  PrepareResult result;
  ranks_.together([&] {
    if (ranks_.rank() == 0) result = named(validation.has_value());
  });
  result.tokenizer = tokenizer_;
  return result;
}

PrepareResult ShardSet::named(bool validation) {
  name_shards(*folder_, options_.shards, validation);
  PrepareResult result;
  if (validation) result.validation = read_token_shard_info(path(kValidationShard));
  for (const std::string& name : train_names_) {
    const TokenShardInfo info = read_token_shard_info(path(name));
    result.train_paths.push_back(info.path);
    if (result.train_paths.size() == 1) {
      result.train = info;
      continue;
    }
    result.train.tokens += info.tokens;
    result.train.documents += info.documents;
    result.train.original_bytes += info.original_bytes;
  }
  return result;
}

}  // namespace trireme

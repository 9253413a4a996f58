#include "io/prepare/token_source.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"

#include "io/prepare/text_entry.h"

namespace trireme {
namespace {

constexpr std::size_t kTokensAtOnce = std::size_t{1} << 18;

std::string index_path(const std::string& path) {
  return path.ends_with(".bin") ? path.substr(0, path.size() - 4) + ".idx" : std::string();
}

bool is_there(const std::string& path) {
  return !path.empty() && look_at(path, ExitStatus::kData).is_file();
}

template <class T>
std::int64_t number_at(const char* bytes) {
  T value{};
  std::memcpy(&value, bytes, sizeof(T));
  if constexpr (sizeof(T) == 8 && std::is_unsigned_v<T>) {
    if (value > static_cast<T>(std::numeric_limits<std::int64_t>::max())) return -1;
  }
  return static_cast<std::int64_t>(value);
}

std::int64_t token_at(const char* bytes, const TokenLayout& layout) {
  switch (layout.width) {
    case 1:
      return layout.is_signed ? number_at<std::int8_t>(bytes) : number_at<std::uint8_t>(bytes);
    case 2:
      return layout.is_signed ? number_at<std::int16_t>(bytes) : number_at<std::uint16_t>(bytes);
    case 4:
      return layout.is_signed ? number_at<std::int32_t>(bytes) : number_at<std::uint32_t>(bytes);
    default:
      return layout.is_signed ? number_at<std::int64_t>(bytes) : number_at<std::uint64_t>(bytes);
  }
}

}  // namespace

TokenSource::TokenSource(const PrepareOptions& options, const Tokenizer& tokenizer,
                         PrepareRanks& ranks)
    : options_(options), tokenizer_(tokenizer) {
  const std::string found = ranks.read_once([&] {
    find_inputs();
    Json files = Json::array();
    for (const InputFile& input : inputs_) {
      files.push_back(Json::array({input.path, input.size}));
    }
    return files.to_cbor();
  });
  if (ranks.rank() > 0) {
    const Json files = Json::from_cbor(found);
    for (const Json& file : files.items()) {
      inputs_.push_back({file.at(0).text(), file.at(1).unsigned_integer(), true});
    }
  }
  for (const InputFile& input : inputs_) bytes_total_ += input.size;
  const bool one_reads = options.validation.rule == ValidationSplit::Rule::kTail;
  keep_share(ranks.rank(), one_reads ? 1 : ranks.size());
}

// A rank keeps the files whose middle lies in its part of all bytes.
void TokenSource::keep_share(int rank, int ranks) {
  const std::uint64_t part = bytes_total_ / static_cast<std::uint64_t>(ranks) + 1;
  std::vector<InputFile> own;
  std::uint64_t before = 0;
  for (InputFile& input : inputs_) {
    const std::uint64_t middle = before + input.size / 2;
    before += input.size;
    if (middle / part == static_cast<std::uint64_t>(rank)) own.push_back(std::move(input));
  }
  inputs_ = std::move(own);
}

void TokenSource::find_inputs() {
  for (const std::string& path : options_.inputs) {
    if (path != "-" && is_input_folder(path)) {
      add_below(path);
      continue;
    }
    inputs_.push_back(input_file(path));
    if (!inputs_.back().regular) {
      throw DataError(fmt::format("{}: tokens are read from files alone", shown(path)));
    }
    if (!is_there(index_path(path))) layout_of(inputs_.back());
  }
  if (inputs_.empty()) {
    const std::string words = words_of(left_out_);
    throw DataError(fmt::format("there are no files of tokens in {}{}{}", options_.inputs[0],
                                words.empty() ? "" : ": ", words));
  }
}

// Takes a file in which nothing says that it holds tokens only if it is called so.
void TokenSource::add_below(const std::string& folder) {
  for (InputFile& file : files_below(folder, &left_out_.pipes)) {
    const std::string& path = file.path;
    if (is_hidden(std::string_view(path).substr(folder.size()))) {
      ++left_out_.hidden;
      continue;
    }
    const bool is_bin = path.ends_with(".bin");
    const auto stem =
        std::string_view(path).substr(0, path.size() - std::min<std::size_t>(path.size(), 4));
    if (path.ends_with(".idx") && is_there(std::string(stem) + ".bin")) continue;
    try {
      if (!is_bin && !has_token_header(file)) {
        throw OtherFile(shown(path), "nothing in it says that it holds tokens, and it is no .bin");
      }
      if (!is_there(index_path(path))) layout_of(file);
      inputs_.push_back(std::move(file));
    } catch (const OtherFile& error) {
      if (left_out_.lacking++ == 0) left_out_.first_lacking = error.what();
    }
  }
}

TokenLayout TokenSource::layout_of(const InputFile& file) const {
  return token_layout(file, options_.raw_token_bytes, tokenizer_.vocabulary());
}

bool TokenSource::open_next() {
  if (next_input_ == inputs_.size()) return false;
  const InputFile& input = inputs_[next_input_++];
  index_.reset();
  if (is_there(index_path(input.path))) {
    index_.emplace(index_path(input.path), input.size);
    layout_ = index_->layout();
  } else {
    layout_ = layout_of(input);
  }
  file_.emplace(input.path, ExitStatus::kData);
  file_->seek(static_cast<std::int64_t>(layout_.offset));
  bytes_read_ += layout_.offset;
  position_ = 0;
  document_end_ = index_ ? index_->next_end().value_or(0) : layout_.count;
  return true;
}

// Reads more tokens of the open file. Returns false at its end.
bool TokenSource::fill() {
  position_ += tokens_.size();
  tokens_.clear();
  at_ = 0;
  const auto count =
      static_cast<std::size_t>(std::min<std::uint64_t>(kTokensAtOnce, layout_.count - position_));
  if (count > 0) convert(count);
  return count > 0;
}

void TokenSource::convert(std::size_t count) {
  const auto width = static_cast<std::size_t>(layout_.width);
  raw_.resize(count * width);
  for (std::size_t have = 0; have < raw_.size();) {
    const std::size_t got = file_->read(raw_.data() + have, raw_.size() - have);
    if (got == 0) throw DataError(fmt::format("{}: it became shorter", shown(file_->path())));
    have += got;
  }
  bytes_read_ += raw_.size();
  tokens_.resize(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t token = token_at(raw_.data() + i * width, layout_);
    if (token < 0 || token >= tokenizer_.vocabulary()) {
      throw DataError(fmt::format("{}: token {} of {} ({}) is {}, of a vocabulary of {}",
                                  shown(file_->path()), position_ + i + 1, layout_.count,
                                  layout_.name, token, tokenizer_.vocabulary()));
    }
    tokens_[i] = static_cast<std::int32_t>(token);
  }
}

bool TokenSource::next(TextChunk& chunk) {
  while (true) {
    if (!file_ && !open_next()) return false;
    if (at_ == tokens_.size() && !fill()) {
      while (index_ && index_->next_end()) {  // empty ones; and it must tell of all
      }
      file_.reset();
      continue;
    }
    const std::uint64_t place = position_ + at_;
    while (document_end_ == place && index_)
      document_end_ = index_->next_end().value_or(layout_.count);
    const auto most = static_cast<std::size_t>(
        std::min<std::uint64_t>(tokens_.size() - at_, document_end_ - place));
    const auto begin = tokens_.begin() + static_cast<std::ptrdiff_t>(at_);
    const auto end =
        std::find(begin, begin + static_cast<std::ptrdiff_t>(most), tokenizer_.end_of_text());
    const auto size = static_cast<std::size_t>(end - begin);
    const bool is_marked = size < most;
    at_ += size + (is_marked ? 1 : 0);
    const bool ends = is_marked || place + size == document_end_;
    if (size == 0 && !(open_ && ends)) continue;
    chunk = {};
    chunk.bytes.assign(reinterpret_cast<const char*>(&*begin), size * sizeof(std::int32_t));
    chunk.starts = !open_;
    chunk.ends = ends;
    open_ = !ends;
    return true;
  }
}

}  // namespace trireme

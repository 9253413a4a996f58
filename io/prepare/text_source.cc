#include "io/prepare/text_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/philox.h"
#include "trireme/io/text_kind.h"

namespace trireme {
namespace {

constexpr std::uint64_t kBlockBytes = 65536;  // of a sample

// Returns the whole lines of a block, or the whole block if it contains no whole line.
std::string_view whole_lines(std::string_view block, bool from_start) {
  const std::size_t first = from_start ? 0 : block.find('\n') + 1;
  const std::size_t last = block.rfind('\n');
  if (last == std::string_view::npos || last + 1 <= first) return block;
  return block.substr(first, last + 1 - first);
}

std::string name_of(const std::string& path) {
  return path == "-" ? "standard input" : path;
}

}  // namespace

TextSource::TextSource(const std::vector<std::string>& inputs, std::uint64_t limit,
                       int standard_input)
    : left_(limit == 0 ? std::numeric_limits<std::uint64_t>::max() : limit),
      standard_input_(standard_input) {
  if (inputs.empty()) throw DataError("no input: name text files, folders, or - for stdin");
  for (const std::string& input : inputs) add(input);
  if (inputs_.empty()) throw DataError(fmt::format("there are no files in {}", inputs.front()));
  for (const InputFile& input : inputs_) all_regular_ = all_regular_ && input.regular;
  // Refuses what is no text before a tokenizer is trained on it.
  for (const InputFile& input : inputs_) {
    if (!input.regular || input.size == 0) continue;
    std::string beginning(std::min<std::uint64_t>(input.size, kTellingBytes), '\0');
    beginning.resize(InputStream(input.path, -1).read(beginning.data(), beginning.size()));
    check_is_text(input.path, beginning);
  }
  if (!all_regular_) return;
  for (const InputFile& input : inputs_) bytes_total_ += input.size;
  bytes_total_ = std::min(bytes_total_, left_);
}

void TextSource::add(const std::string& path) {
  if (path == "-" || !is_input_folder(path)) {
    inputs_.push_back(input_file(path));
    return;
  }
  for (InputFile& file : files_below(path)) inputs_.push_back(std::move(file));
}

// The last chunk of a file is empty.
bool TextSource::read_chunk(TextChunk& chunk) {
  chunk = {};
  if (!stream_) {
    if (next_input_ == inputs_.size() || left_ == 0) return false;
    stream_.emplace(inputs_[next_input_].path, standard_input_);
    chunk.starts = true;
    position_ = 0;
  }
  const std::size_t wanted = std::min<std::uint64_t>(kChunkBytes, left_);
  chunk.bytes.resize(wanted);
  const std::size_t size = stream_->read(chunk.bytes.data(), wanted);
  chunk.bytes.resize(size);
  if (chunk.starts) look_at_beginning(chunk.bytes);
  count_zeros(chunk.bytes);
  left_ -= size;
  if (size < wanted || left_ == 0) {
    chunk.ends = true;
    stream_.reset();
    ++next_input_;
  }
  return true;
}

void TextSource::look_at_beginning(std::string_view beginning) {
  const std::string& path = inputs_[next_input_].path;
  const std::string name = name_of(path);
  check_is_text(name, beginning);
  if (json_lines_.empty() && is_json_lines(path, beginning)) json_lines_ = name;
}

void TextSource::count_zeros(std::string_view bytes) {
  const std::uint64_t at = std::exchange(position_, position_ + bytes.size());
  const std::size_t first = bytes.find('\0');
  if (first == std::string_view::npos) return;
  if (zero_bytes_.count == 0) zero_bytes_ = {0, name_of(inputs_[next_input_].path), at + first + 1};
  zero_bytes_.count += static_cast<std::uint64_t>(std::ranges::count(bytes.substr(first), '\0'));
}

bool TextSource::next(TextChunk& chunk) {
  if (replay_.empty()) {
    if (!read_chunk(chunk)) return false;
  } else {
    chunk = std::move(replay_.front());
    replay_.pop_front();
  }
  bytes_read_ += chunk.bytes.size();
  return true;
}

std::string TextSource::sample(std::uint64_t bytes, std::uint64_t tail, std::uint64_t seed) {
  if (!all_regular_) return beginning(bytes);
  const std::uint64_t end = bytes_total_ > tail ? bytes_total_ - tail : bytes_total_;
  if (end <= bytes) return read_range(0, end);
  const std::uint64_t blocks = end / kBlockBytes;
  const std::uint64_t count = std::clamp<std::uint64_t>(bytes / kBlockBytes, 1, blocks);
  const std::uint64_t key = philox_key(seed, "tokenizer.sample");
  std::vector<std::uint64_t> chosen(count);
  for (std::uint64_t i = 0; i < count; ++i) chosen[i] = permuted_index(key, blocks, i);
  std::sort(chosen.begin(), chosen.end());
  std::string text;
  for (const std::uint64_t block : chosen) {
    const std::string raw = read_range(block * kBlockBytes, (block + 1) * kBlockBytes);
    text += whole_lines(raw, block == 0);
    text += '\n';
  }
  return text;
}

// Returns bytes [begin, end) of the concatenated files.
std::string TextSource::read_range(std::uint64_t begin, std::uint64_t end) const {
  std::string text;
  std::uint64_t file_begin = 0;
  for (const InputFile& input : inputs_) {
    const std::uint64_t file_end = file_begin + input.size;
    const std::uint64_t from = std::max(begin, file_begin);
    const std::uint64_t to = std::min(end, file_end);
    if (from < to) {
      FileReader file(input.path, ExitStatus::kData);
      file.seek(static_cast<std::int64_t>(from - file_begin));
      const std::size_t at = text.size();
      text.resize(at + (to - from));
      std::size_t got = 0;
      while (const std::size_t more = file.read(text.data() + at + got, to - from - got)) {
        got += more;
      }
      text.resize(at + got);
    }
    file_begin = file_end;
  }
  return text;
}

std::string TextSource::beginning(std::uint64_t bytes) {
  std::string text;
  TextChunk chunk;
  while (text.size() < bytes && read_chunk(chunk)) {
    text += chunk.bytes;
    if (chunk.ends) text += '\n';
    replay_.push_back(std::move(chunk));
  }
  text.resize(std::min<std::uint64_t>(text.size(), bytes));
  return text;
}

}  // namespace trireme

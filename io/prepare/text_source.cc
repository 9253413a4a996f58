#include "io/prepare/text_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/philox.h"
#include "trireme/base/text.h"

#include "io/prepare/record_format.h"

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

TextSource::TextSource(const PrepareOptions& options)
    : options_(options),
      left_(options.input_limit == 0 ? std::numeric_limits<std::uint64_t>::max()
                                     : options.input_limit) {
  const std::vector<std::string>& inputs = options.inputs;
  if (inputs.empty()) throw DataError("no input: name text files, folders, or - for stdin");
  bool known = true;
  for (const std::string& input : inputs) add(input);
  for (const Input& input : inputs_) {
    bytes_total_ += input.file.size;
    known = known && input.file.regular;
  }
  if (inputs_.empty()) {
    const LeftOut& left_out = remarks_.left_out;
    const std::string words = words_of(left_out);
    throw DataError(words.empty()
                        ? fmt::format("there are no files in {}", inputs.front())
                        : fmt::format("there is no text in {}: {}", inputs.front(), words));
  }
  const bool cut = bytes_total_ > left_;
  if (!known || (cut && !can_draw_)) bytes_total_ = 0;
  if (cut && can_draw_) bytes_total_ = left_;
}

void TextSource::add(const std::string& path) {
  if (path == "-" || !is_input_folder(path)) {
    look_at({input_file(path), Named::kAlone});
    return;
  }
  for (InputFile& file : files_below(path, &remarks_.left_out.pipes)) {
    if (is_hidden(std::string_view(file.path).substr(path.size()))) {
      ++remarks_.left_out.hidden;
    } else {
      look_at({std::move(file), Named::kInFolder});
    }
  }
}

// Refuses what is no text before a tokenizer is trained on it.
void TextSource::look_at(Input input) {
  TextLook look;
  if (input.file.regular) {
    const PeekedBytes peeked(std::make_unique<FileBytes>(input.file.path, -1),
                             std::min<std::size_t>(input.file.size, kSeenBytes));
    look = look_at_text(input.file.path, peeked.beginning(), input.named, options_);
  }
  if (look.kind == TextKind::kParquet) {
    input.parquet = true;
    auto file = std::make_unique<FileBytes>(input.file.path, -1);
    if (!open_parquet(std::move(file), input.named, options_, remarks_)) return;
  }
  if (leave_out(input.file.path, look, remarks_.left_out)) return;
  can_draw_ = can_draw_ && look.kind == TextKind::kPlain;
  inputs_.push_back(std::move(input));
}

void TextSource::open_next() {
  const Input& input = inputs_[next_input_++];
  auto file = std::make_unique<FileBytes>(input.file.path, options_.standard_input);
  file_ = file.get();
  entry_ = input.parquet ? open_parquet(std::move(file), input.named, options_, remarks_)
                         : open_text(name_of(input.file.path), std::move(file), input.named,
                                     options_, remarks_);
}

// The last chunk of a plain text is empty.
bool TextSource::read_chunk(TextChunk& chunk) {
  while (left_ > 0) {
    if (entry_ && entry_->next(chunk, left_)) break;
    if (file_ != nullptr) bytes_read_ += std::exchange(file_, nullptr)->bytes_read();
    entry_.reset();
    if (next_input_ == inputs_.size()) return false;
    open_next();
  }
  if (left_ == 0) return false;
  if (chunk.bytes.size() >= left_) {
    chunk.bytes.resize(left_);
    chunk.ends = true;
  }
  left_ -= chunk.bytes.size();
  return true;
}

std::uint64_t TextSource::bytes_read() const {
  return bytes_read_ + (file_ == nullptr ? 0 : file_->bytes_read());
}

bool TextSource::next(TextChunk& chunk) {
  if (replay_.empty()) {
    if (!read_chunk(chunk)) return false;
  } else {
    chunk = std::move(replay_.front());
    replay_.pop_front();
  }
  text_bytes_ += chunk.bytes.size();
  return true;
}

std::string TextSource::sample(std::uint64_t bytes, std::uint64_t tail, std::uint64_t seed) {
  const std::uint64_t end = bytes_total_ > tail ? bytes_total_ - tail : bytes_total_;
  if (!can_draw_ || end <= bytes) return beginning(bytes, tail);
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
  for (const auto& [input, named, parquet] : inputs_) {
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

std::string TextSource::beginning(std::uint64_t bytes, std::uint64_t tail) {
  std::uint64_t held = 0;
  TextChunk chunk;
  while (held < bytes + tail && read_chunk(chunk)) {
    held += chunk.bytes.size();
    replay_.push_back(std::move(chunk));
  }
  const bool is_all = held < bytes + tail;
  std::uint64_t left = std::min(bytes, is_all && held > tail ? held - tail : held);
  std::string text;
  for (const TextChunk& one : replay_) {
    text.append(one.bytes, 0, left);
    left -= std::min<std::uint64_t>(left, one.bytes.size());
    if (left == 0) break;
    if (one.ends && !text.empty() && text.back() != '\n') text += '\n';
  }
  return text;
}

}  // namespace trireme

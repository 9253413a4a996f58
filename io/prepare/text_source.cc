#include "io/prepare/text_source.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/philox.h"

#include "io/prepare/part_places.h"

namespace trireme {
namespace {

constexpr std::uint64_t kSampledBlock = 65536;

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

TextSource::TextSource(const PrepareOptions& options, const TextInputs& inputs,
                       const InputPortion& portion, const Tokenizer* tokenizer)
    : options_(options),
      inputs_(inputs),
      portion_(portion),
      left_(options.input_limit == 0 ? std::numeric_limits<std::uint64_t>::max()
                                     : options.input_limit),
      next_input_(portion.first) {
  if (!portion.is_part()) return;
  const TextInput& input = inputs.files[portion.first];
  if (input.kind == TextKind::kParquet) return;
  part_ = bytes_of_part(input, portion, options.document_separator, tokenizer);
  goes_on_ =
      part_.first > 0 && input.kind == TextKind::kPlain && options.document_separator.empty();
}

std::optional<std::string> TextSource::beginning_of_text(std::size_t most) const {
  const TextInput& input = inputs_.files[portion_.first];
  const bool is_text =
      portion_.is_part() && input.kind == TextKind::kPlain && options_.document_separator.empty();
  if (!is_text) return {};
  std::string bytes(most, '\0');
  bytes.resize(FileBytes(input.file.path, -1).read(bytes.data(), most));
  return bytes;
}

void TextSource::open_next() {
  if (portion_.is_part()) {
    ++next_input_;
    open_part();
    return;
  }
  const TextInput& input = inputs_.files[next_input_++];
  auto file = std::make_unique<FileBytes>(input.file.path, options_.standard_input);
  of_file_ = file->counter();
  entry_ =
      input.kind == TextKind::kParquet
          ? open_parquet(std::move(file), input.named, options_, remarks_)
          : open_text(name_of(input.file.path), std::move(file), input.named, options_, remarks_);
}

void TextSource::open_part() {
  const TextInput& input = inputs_.files[portion_.first];
  if (input.kind == TextKind::kParquet) {
    auto file = std::make_unique<FileBytes>(input.file.path, -1);
    of_file_ = file->counter();
    const std::size_t first = portion_.part * portion_.step;
    entry_ = open_parquet(std::move(file), input.named, options_, remarks_,
                          {first, first + portion_.step});
    return;
  }
  if (part_.first == part_.second) return;
  auto file = std::make_unique<FileBytes>(input.file.path, part_.first, part_.second);
  of_file_ = file->counter();
  if (input.json_lines) {
    entry_ = open_json_lines_part(std::move(file), options_, remarks_);
    return;
  }
  if (part_.first == 0 && !input.words.empty() && remarks_.plain_records.count++ == 0) {
    remarks_.plain_records.first = fmt::format("{}: {}", input.file.path, input.words);
  }
  entry_ = open_plain_part(std::move(file), part_.first, part_.second == input.file.size, remarks_);
}

// The last chunk of a plain text is empty.
bool TextSource::read_chunk(TextChunk& chunk) {
  while (left_ > 0) {
    if (entry_ && entry_->next(chunk, left_)) break;
    if (of_file_ != nullptr) bytes_read_ += *std::exchange(of_file_, nullptr);
    entry_.reset();
    if (next_input_ == portion_.end) return false;
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

const std::string& TextSource::file() const {
  return inputs_.files.at(next_input_ - 1).file.path;
}

std::uint64_t TextSource::bytes_read() const {
  return bytes_read_ + (of_file_ == nullptr ? 0 : of_file_->load());
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
  const std::uint64_t all = inputs_.bytes_total;
  const std::uint64_t end = all > tail ? all - tail : all;
  if (!inputs_.can_draw || end <= bytes) return beginning(bytes, tail);
  const std::uint64_t blocks = end / kSampledBlock;
  const std::uint64_t count = std::clamp<std::uint64_t>(bytes / kSampledBlock, 1, blocks);
  const std::uint64_t key = philox_key(seed, "tokenizer.sample");
  std::vector<std::uint64_t> chosen(count);
  for (std::uint64_t i = 0; i < count; ++i) chosen[i] = permuted_index(key, blocks, i);
  std::sort(chosen.begin(), chosen.end());
  std::string text;
  for (const std::uint64_t block : chosen) {
    const std::string raw = read_range(block * kSampledBlock, (block + 1) * kSampledBlock);
    text += whole_lines(raw, block == 0);
    text += '\n';
  }
  return text;
}

// Returns bytes [begin, end) of the concatenated files.
std::string TextSource::read_range(std::uint64_t begin, std::uint64_t end) const {
  std::string text;
  std::uint64_t file_begin = 0;
  for (const TextInput& one : inputs_.files) {
    const InputFile& input = one.file;
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

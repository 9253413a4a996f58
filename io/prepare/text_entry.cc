#include "io/prepare/text_entry.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/io/text_kind.h"

#include "io/prepare/ahead_bytes.h"
#include "io/prepare/packed_data.h"
#include "io/prepare/parquet_records.h"
#include "io/prepare/record_format.h"
#include "io/prepare/tar_reader.h"
#include "io/prepare/unpacked_bytes.h"
#include "io/prepare/utf16_bytes.h"

namespace trireme {
namespace {

class PlainText final : public TextEntry {
 public:
  PlainText(std::string name, ByteStreamPtr stream, ZeroBytes& zeros)
      : name_(std::move(name)), stream_(std::move(stream)), zeros_(zeros) {}

  bool next(TextChunk& chunk, std::size_t most) override {
    if (ended_) return false;
    const std::size_t wanted = std::min(kChunkBytes, most);
    chunk = {};
    chunk.bytes.resize(wanted);
    chunk.bytes.resize(stream_->read(chunk.bytes.data(), wanted));
    count_zeros(chunk.bytes);
    chunk.starts = position_ == 0;
    position_ += chunk.bytes.size();
    ended_ = chunk.ends = chunk.bytes.size() < wanted;
    return true;
  }

 private:
  void count_zeros(std::string_view bytes) {
    const std::size_t first = bytes.find('\0');
    if (first == std::string_view::npos) return;
    if (zeros_.count == 0) zeros_ = {0, name_, position_ + first + 1};
    zeros_.count += static_cast<std::uint64_t>(std::ranges::count(bytes.substr(first), '\0'));
  }

  std::string name_;
  ByteStreamPtr stream_;
  ZeroBytes& zeros_;
  std::uint64_t position_ = 0;
  bool ended_ = false;
};

class Records final : public TextEntry {
 public:
  Records(std::unique_ptr<RecordSource> source, const PrepareOptions& options, BadRecords& bad)
      : source_(std::move(source)), options_(options), bad_(bad) {}

  bool next(TextChunk& chunk, std::size_t /*most*/) override {
    while (true) {
      try {
        if (!source_->next(fields_)) return false;
        break;
      } catch (const BadRecord& error) {
        if (!options_.skip_bad) {
          throw DataError(fmt::format("{}; --skip-bad true leaves such records out", error.what()));
        }
        if (bad_.count++ == 0) bad_.first = error.what();
      }
    }
    chunk = {};
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (i > 0) chunk.bytes += options_.fields.join;
      chunk.bytes += fields_[i];
    }
    chunk.starts = chunk.ends = chunk.is_record = true;
    return true;
  }

 private:
  std::unique_ptr<RecordSource> source_;
  const PrepareOptions& options_;
  BadRecords& bad_;
  std::vector<std::string_view> fields_;
};

// The bytes of the archive's member.
class MemberBytes final : public ByteStream {
 public:
  explicit MemberBytes(TarReader& tar) : tar_(tar) {}
  std::size_t read(char* to, std::size_t count) override { return tar_.read(to, count); }

 private:
  TarReader& tar_;
};

// The members of an archive, one after the other.
class TarText final : public TextEntry {
 public:
  TarText(const std::string& name, ByteStreamPtr stream, const PrepareOptions& options,
          TextRemarks& remarks)
      : name_(name), tar_(name, std::move(stream)), options_(options), remarks_(remarks) {}

  bool next(TextChunk& chunk, std::size_t most) override {
    while (true) {
      if (member_ && member_->next(chunk, most)) return true;
      member_.reset();
      TarMember member;
      if (!tar_.next(member)) return false;
      if (member.path.ends_with('/')) continue;
      if (!member.regular || is_hidden(member.path)) {
        ++(member.regular ? remarks_.left_out.hidden : remarks_.left_out.links);
        continue;
      }
      member_ =
          open_text(fmt::format("{}: {}", name_, member.path), std::make_unique<MemberBytes>(tar_),
                    Named::kInArchive, options_, remarks_);
    }
  }

 private:
  std::string name_;
  TarReader tar_;
  const PrepareOptions& options_;
  TextRemarks& remarks_;
  std::unique_ptr<TextEntry> member_;
};

void check_kind(const std::string& name, std::string_view beginning) {
  check_is_text(name, beginning);
  check_has_no_zero(name, beginning);
}

// Why what begins so is no text: a fault; nothing where it may be one.
std::optional<DataError> fault_of(const std::string& name, std::string_view beginning) {
  try {
    check_kind(name, beginning);
    return {};
  } catch (const DataError& error) {
    return error;
  }
}

}  // namespace

bool is_hidden(std::string_view path) {
  while (!path.empty()) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, end);
    path.remove_prefix(std::min(end + 1, path.size()));
    if (name.starts_with('.') && name != "." && name != "..") return true;
    if (name == "CVS" || name == "_darcs") return true;  // of version control
  }
  return false;
}

TextKind look_at_kind(const std::string& name, std::string_view beginning, Named named,
                      const PrepareOptions& options) {
  if (options.as_bytes) return TextKind::kPlain;
  if (can_unpack(beginning) || (is_tar(beginning) && named != Named::kInArchive) ||
      is_marked_utf16(beginning) ||
      record_format(beginning, options.fields) != RecordFormat::kNone) {
    return TextKind::kOther;
  }
  if (is_parquet(beginning) && !options.fields.names.empty()) return TextKind::kParquet;
  if (const auto fault = fault_of(name, beginning)) {
    if (named == Named::kAlone) throw *fault;
    return TextKind::kBinary;
  }
  check_plain_is_meant(name, beginning, options.fields);
  return TextKind::kPlain;
}

std::unique_ptr<TextEntry> open_text(const std::string& name, ByteStreamPtr stream, Named named,
                                     const PrepareOptions& options, TextRemarks& remarks) {
  const auto peek = [&] {
    auto peeked = std::make_unique<PeekedBytes>(std::move(stream), kSeenBytes);
    const std::string_view beginning = peeked->beginning();
    stream = std::move(peeked);
    return beginning;
  };
  std::string_view beginning = peek();
  if (!options.as_bytes) {
    if (can_unpack(beginning)) {
      stream = unpack(name, std::string(beginning.substr(0, kTellingBytes)), std::move(stream));
      if (named != Named::kInArchive) stream = std::make_unique<AheadBytes>(std::move(stream));
      beginning = peek();
      if (can_unpack(beginning)) check_kind(name, beginning);  // packed twice
    }
    if (is_tar(beginning) && named != Named::kInArchive) {
      return std::make_unique<TarText>(name, std::move(stream), options, remarks);
    }
    if (is_marked_utf16(beginning)) {
      stream = utf8_of_utf16(name, std::move(stream));
      beginning = peek();
    }
    const RecordFormat format = record_format(beginning, options.fields);
    if (format != RecordFormat::kNone) {
      return std::make_unique<Records>(
          make_record_source(format, name, std::move(stream), options.fields), options,
          remarks.bad_records);
    }
    const TextKind kind = look_at_kind(name, beginning, named, options);
    if (kind == TextKind::kParquet) {
      throw DataError(fmt::format(
          "{}: a Parquet file, which is read from many places: give it as a file of its own, "
          "neither packed nor in an archive nor from a pipe",
          shown(name)));
    }
    if (kind == TextKind::kBinary) {
      if (remarks.left_out.binary++ == 0) remarks.left_out.first_binary = name;
      return nullptr;
    }
  }
  return std::make_unique<PlainText>(name, std::move(stream), remarks.zero_bytes);
}

std::unique_ptr<TextEntry> open_parquet(std::unique_ptr<FileBytes> file,
                                        const PrepareOptions& options, TextRemarks& remarks) {
  return std::make_unique<Records>(make_parquet(std::move(file), options.fields.names), options,
                                   remarks.bad_records);
}

}  // namespace trireme

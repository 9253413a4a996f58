#include "io/prepare/text_entry.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/byte_order_mark.h"
#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/io/lfs_pointer.h"
#include "trireme/io/text_kind.h"

#include "io/files/posix_file.h"
#include "io/prepare/ahead_bytes.h"
#include "io/prepare/packed_data.h"
#include "io/prepare/parquet_records.h"
#include "io/prepare/tar_reader.h"
#include "io/prepare/unpacked_bytes.h"
#include "io/prepare/utf16_bytes.h"

namespace trireme {
namespace {

class PlainText final : public TextEntry {
 public:
  // So many bytes of the file come before those of the stream.
  PlainText(std::string name, ByteStreamPtr stream, std::uint64_t before, ZeroBytes& zeros,
            bool reaches_end = true)
      : name_(std::move(name)),
        stream_(std::move(stream)),
        zeros_(zeros),
        position_(before),
        reaches_end_(reaches_end) {}

  bool next(TextChunk& chunk, std::size_t most) override {
    if (ended_) return false;
    const std::size_t wanted = std::min(kChunkBytes, most);
    chunk = {};
    chunk.bytes.resize(wanted);
    chunk.bytes.resize(stream_->read(chunk.bytes.data(), wanted));
    count_zeros(chunk.bytes);
    chunk.starts = std::exchange(starts_, false);
    position_ += chunk.bytes.size();
    ended_ = chunk.bytes.size() < wanted;
    chunk.ends = ended_ && reaches_end_;
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
  std::uint64_t position_;  // in the file
  bool reaches_end_, starts_ = true, ended_ = false;
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

constexpr int kDeepestArchive = 8;

// The members of an archive, one after the other.
class TarText final : public TextEntry {
 public:
  // `depth`: how many archives a member is in.
  TarText(const std::string& name, ByteStreamPtr stream, const PrepareOptions& options,
          TextRemarks& remarks, int depth)
      : name_(name),
        tar_(name, std::move(stream)),
        options_(options),
        remarks_(remarks),
        depth_(depth) {}

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
                    Named::kInArchive, options_, remarks_, depth_);
    }
  }

 private:
  std::string name_;
  TarReader tar_;
  const PrepareOptions& options_;
  TextRemarks& remarks_;
  int depth_;
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
    // They summarise a dataset of Parquet files, which hold all of it.
    if (name == "_metadata" || name == "_common_metadata") return true;
  }
  return false;
}

bool leave_out(const std::string& name, const TextLook& look, LeftOut& left_out) {
  if (look.kind == TextKind::kBinary) {
    if (left_out.binary++ == 0) left_out.first_binary = name;
    return true;
  }
  if (look.kind == TextKind::kLacking) {
    if (left_out.lacking++ == 0) left_out.first_lacking = fmt::format("{}: {}", name, look.words);
    return true;
  }
  return false;
}

namespace {

// The bytes of a stream as a file, which nobody else can open, for what is read from many places.
PosixFile spooled(const std::string& name, ByteStream& stream, const std::string& folder) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 20;
  PosixFile file =
      make_file_anew(fmt::format("{}/train.h5.{}-{}.partial", folder, host_name(), ::getpid()));
  file.lose_name(name);
  std::string bytes(kAtOnce, '\0');
  std::int64_t written = 0;
  while (const std::size_t size = stream.read(bytes.data(), kAtOnce)) {
    file.write(written, bytes.data(), size);
    written += static_cast<std::int64_t>(size);
  }
  return file;
}

// `progress` may be null.
std::unique_ptr<TextEntry> parquet_rows(PosixFile file, std::unique_ptr<FileBytes> progress,
                                        Named named, const PrepareOptions& options,
                                        TextRemarks& remarks, const RowGroups& groups = {}) {
  const std::string name = file.path();
  try {
    return std::make_unique<Records>(
        make_parquet(std::move(file), std::move(progress), options.fields.names, groups), options,
        remarks.bad_records);
  } catch (const OtherFile& error) {
    if (named == Named::kAlone) throw;
    leave_out(name, {TextKind::kLacking, error.words(), {}}, remarks.left_out);
    return nullptr;
  }
}

}  // namespace

TextLook look_at_text(const std::string& name, std::string_view beginning, Named named,
                      const PrepareOptions& options) {
  if (options.as_bytes) return {TextKind::kPlain, {}, {}};
  if (can_unpack(beginning) || is_tar(beginning) || is_marked_utf16(beginning)) return {};
  if (is_text_of_lfs(beginning)) {
    if (named == Named::kAlone) throw DataError(fmt::format("{}: {}", shown(name), kWordsOnLfs));
    return {TextKind::kLacking, kWordsOnLfs, {}};
  }
  const FoundRecords found = find_records(name, beginning, options.fields);
  const bool is_named = named == Named::kAlone;
  if (found.format != RecordFormat::kNone && (found.lacks.empty() || is_named)) {
    return {TextKind::kOther, {}, found};
  }
  if (is_parquet(beginning) && (!options.fields.names.empty() || is_named)) {
    return {TextKind::kParquet, {}, {}};
  }
  if (const auto fault = fault_of(name, beginning)) {
    if (is_named) throw *fault;
    return {TextKind::kBinary, {}, {}};
  }
  if (!found.lacks.empty()) {
    if (is_named) throw DataError(fmt::format("{}: {}", shown(name), found.lacks));
    return {TextKind::kLacking, found.lacks, {}};
  }
  // A mark is no part of the text.
  if (without_byte_order_mark(beginning).size() < beginning.size()) return {};
  return {TextKind::kPlain, found.remark, {}};
}

std::unique_ptr<TextEntry> open_text(const std::string& name, ByteStreamPtr stream, Named named,
                                     const PrepareOptions& options, TextRemarks& remarks,
                                     int depth) {
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
    if (is_tar(beginning)) {
      if (depth == kDeepestArchive) {
        throw DataError(fmt::format("{}: archives inside of archives, more than {} deep",
                                    shown(name), kDeepestArchive));
      }
      return std::make_unique<TarText>(name, std::move(stream), options, remarks, depth + 1);
    }
    if (is_marked_utf16(beginning)) {
      stream = utf8_of_utf16(name, std::move(stream));
      beginning = peek();
    }
    // The mark is no part of a text.
    const std::size_t mark = beginning.size() - without_byte_order_mark(beginning).size();
    const TextLook look = look_at_text(name, beginning.substr(mark), named, options);
    if (look.kind == TextKind::kParquet) {
      return parquet_rows(spooled(name, *stream, options.output), nullptr, named, options, remarks);
    }
    if (leave_out(name, look, remarks.left_out)) return nullptr;
    if (look.records.format != RecordFormat::kNone) {
      return std::make_unique<Records>(
          make_record_source(look.records, name, std::move(stream), options.fields), options,
          remarks.bad_records);
    }
    if (!look.words.empty() && remarks.plain_records.count++ == 0) {
      remarks.plain_records.first = fmt::format("{}: {}", name, look.words);
    }
    std::string passed(mark, '\0');
    stream->read(passed.data(), mark);
    return std::make_unique<PlainText>(name, std::move(stream), mark, remarks.zero_bytes);
  }
  return std::make_unique<PlainText>(name, std::move(stream), 0, remarks.zero_bytes);
}

std::unique_ptr<TextEntry> open_parquet(std::unique_ptr<FileBytes> file, Named named,
                                        const PrepareOptions& options, TextRemarks& remarks,
                                        const RowGroups& groups) {
  PosixFile opened(file->path(), O_RDONLY, ExitStatus::kData);
  return parquet_rows(std::move(opened), std::move(file), named, options, remarks, groups);
}

std::unique_ptr<TextEntry> open_plain_part(std::unique_ptr<FileBytes> file, std::uint64_t begin,
                                           bool reaches_end, TextRemarks& remarks) {
  std::string name = file->path();
  return std::make_unique<PlainText>(std::move(name), std::move(file), begin, remarks.zero_bytes,
                                     reaches_end);
}

std::unique_ptr<TextEntry> open_json_lines_part(std::unique_ptr<FileBytes> file,
                                                const PrepareOptions& options,
                                                TextRemarks& remarks) {
  std::string name = file->path();
  return std::make_unique<Records>(
      make_record_source({RecordFormat::kJsonLines, {}, {}, {}}, std::move(name), std::move(file),
                         options.fields),
      options, remarks.bad_records);
}

}  // namespace trireme

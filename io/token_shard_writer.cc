#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include "trireme/base/error.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/token_shard.h"

#include "spool_file.h"
#include "token_shard_format.h"

namespace trireme {
namespace {

constexpr std::size_t kCopyElements = std::size_t{1} << 20;

// Brings a file or folder to the disk.
void sync_path(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = descriptor >= 0 && ::fsync(descriptor) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!ok)
    throw RunFolderError(fmt::format("{}: cannot be synced: {}", path, std::strerror(error)));
}

template <class T>
void copy(SpoolFile& from, hdf5::Dataset to) {
  std::vector<T> values;
  const std::uint64_t count = from.size() / sizeof(T);
  for (std::uint64_t at = 0; at < count; at += kCopyElements) {
    values.resize(std::min<std::uint64_t>(kCopyElements, count - at));
    from.read(at * sizeof(T), std::as_writable_bytes(std::span(values)));
    to.write(static_cast<std::int64_t>(at), std::span<const T>(values));
  }
}

}  // namespace

// A contiguous dataset needs its length when it is made, and the length is known at the end only:
// so tokens and offsets wait in files of their own.
class TokenShardWriter::Impl {
 public:
  Impl(std::string path, TokenizerPtr tokenizer, std::string split, std::string source)
      : path_(std::move(path)),
        partial_(path_ + ".partial"),
        tokenizer_(std::move(tokenizer)),
        split_(std::move(split)),
        source_(std::move(source)),
        token_bytes_(tokenizer_->vocabulary() <= 65536 ? 2 : 4),
        tokens_(path_ + ".tokens.partial"),
        documents_(path_ + ".documents.partial"),
        checksum_(XXH64_createState(), XXH64_freeState) {
    XXH64_reset(checksum_.get(), 0);
  }

  ~Impl() {
    if (created_) ::unlink(partial_.c_str());
  }

  void append(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> document_starts,
              std::uint64_t original_bytes) {
    std::vector<std::uint64_t> starts(document_starts.begin(), document_starts.end());
    for (std::uint64_t& start : starts) start += token_count_;
    documents_.append(std::as_bytes(std::span(starts)));
    if (token_bytes_ == 2) {
      narrow_.assign(tokens.begin(), tokens.end());
      add(std::as_bytes(std::span(narrow_)));
    } else {
      add(std::as_bytes(tokens));
    }
    token_count_ += tokens.size();
    document_count_ += starts.size();
    original_bytes_ += original_bytes;
  }

  TokenShardInfo commit() {
    try {
      write_hdf5();
    } catch (const Hdf5Error& error) {
      throw RunFolderError(error.what());
    }
    sync_path(partial_);
    if (::rename(partial_.c_str(), path_.c_str()) != 0) {
      throw RunFolderError(
          fmt::format("{}: cannot be renamed: {}", partial_, std::strerror(errno)));
    }
    created_ = false;
    const std::string folder = std::filesystem::path(path_).parent_path().string();
    sync_path(folder.empty() ? "." : folder);
    return read_token_shard_info(path_);
  }

  std::uint64_t token_count() const { return token_count_; }
  std::uint64_t document_count() const { return document_count_; }

 private:
  void add(std::span<const std::byte> bytes) {
    XXH64_update(checksum_.get(), bytes.data(), bytes.size());
    tokens_.append(bytes);
  }

  void write_hdf5() {
    using hdf5::ElementType;
    const auto extent = [](std::uint64_t count) {
      return hdf5::Extents{static_cast<std::int64_t>(count)};
    };
    hdf5::File file = hdf5::File::create(partial_);
    created_ = true;
    const auto type = token_bytes_ == 2 ? ElementType::kU16 : ElementType::kU32;
    const auto tokens = file.create_dataset("/tokens", type, extent(token_count_));
    token_bytes_ == 2 ? copy<std::uint16_t>(tokens_, tokens) : copy<std::uint32_t>(tokens_, tokens);
    copy<std::uint64_t>(
        documents_, file.create_dataset("/documents", ElementType::kU64, extent(document_count_)));
    const std::string& model = tokenizer_->model();
    auto stored = file.create_dataset("/tokenizer", ElementType::kU8, extent(model.size()));
    if (!model.empty()) {
      const auto* bytes = reinterpret_cast<const std::uint8_t*>(model.data());
      stored.write(0, std::span(bytes, model.size()));
    }
    file.set_attribute("/tokenizer", "checksum", checksum_of_model(model));
    write_attributes(file);
    file.close();
  }

  void write_attributes(hdf5::File& file) {
    file.set_attribute("/", "format_version", kTokenShardVersion);
    file.set_attribute("/", "tokens", static_cast<std::int64_t>(token_count_));
    file.set_attribute("/", "documents", static_cast<std::int64_t>(document_count_));
    file.set_attribute("/", "original_bytes", static_cast<std::int64_t>(original_bytes_));
    file.set_attribute("/", "vocabulary", std::int64_t{tokenizer_->vocabulary()});
    file.set_attribute("/", "end_of_text", std::int64_t{tokenizer_->end_of_text()});
    file.set_attribute("/", "tokenizer", std::string(tokenizer_->kind()));
    file.set_attribute("/", "source", source_);
    file.set_attribute("/", "split", split_);
    file.set_attribute("/", "checksum", checksum_text(XXH64_digest(checksum_.get())));
  }

  std::string path_, partial_;
  TokenizerPtr tokenizer_;
  std::string split_, source_;
  int token_bytes_;
  SpoolFile tokens_, documents_;
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> checksum_;
  std::vector<std::uint16_t> narrow_;
  std::uint64_t token_count_ = 0, document_count_ = 0, original_bytes_ = 0;
  bool created_ = false;
};

TokenShardWriter::TokenShardWriter(std::string path, TokenizerPtr tokenizer, std::string split,
                                   std::string source)
    : impl_(std::make_unique<Impl>(std::move(path), std::move(tokenizer), std::move(split),
                                   std::move(source))) {}

TokenShardWriter::~TokenShardWriter() = default;

void TokenShardWriter::append(std::span<const std::int32_t> tokens,
                              std::span<const std::uint64_t> document_starts,
                              std::uint64_t original_bytes) {
  impl_->append(tokens, document_starts, original_bytes);
}

std::int64_t TokenShardWriter::tokens() const {
  return static_cast<std::int64_t>(impl_->token_count());
}

std::int64_t TokenShardWriter::documents() const {
  return static_cast<std::int64_t>(impl_->document_count());
}

TokenShardInfo TokenShardWriter::commit() {
  return impl_->commit();
}

}  // namespace trireme

#include "token_file.h"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

void read_exactly(const TokenShardInfo& info, int descriptor, std::int64_t offset,
                  std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(descriptor, bytes.data(), bytes.size(), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw DataError(fmt::format("cannot read {}: {}", info.path, std::strerror(errno)));
    if (got == 0) throw DataError(fmt::format("{}: the file became shorter", info.path));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    offset += got;
  }
}

}  // namespace

TokenFile::TokenFile(const TokenShardInfo& info) : info_(info) {}

TokenFile::~TokenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int TokenFile::descriptor() {
  const std::lock_guard lock(mutex_);
  if (descriptor_ < 0) descriptor_ = ::open(info_.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) {
    throw DataError(fmt::format("cannot read {}: {}", info_.path, std::strerror(errno)));
  }
  return descriptor_;
}

void TokenFile::read(std::int64_t begin, std::span<std::int32_t> tokens) {
  TRIREME_CHECK(begin >= 0 && begin + static_cast<std::int64_t>(tokens.size()) <= info_.tokens,
                fmt::format("{}: read past the end", info_.path));
  info_.token_bytes == 2 ? read_as<std::uint16_t>(begin, tokens)
                         : read_as<std::uint32_t>(begin, tokens);
}

template <class T>
void TokenFile::read_as(std::int64_t begin, std::span<std::int32_t> tokens) {
  std::vector<T> raw(tokens.size());
  if (info_.data_offset >= 0) {
    const auto offset = info_.data_offset + begin * static_cast<std::int64_t>(sizeof(T));
    read_exactly(info_, descriptor(), offset, std::as_writable_bytes(std::span(raw)));
  } else {
    const std::lock_guard lock(mutex_);
    if (!dataset_) dataset_ = hdf5::File::open(info_.path).dataset("/tokens");
    dataset_->read(begin, std::span<T>(raw));
  }
  for (std::size_t i = 0; i < raw.size(); ++i) {
    if (static_cast<std::int64_t>(raw[i]) >= info_.vocabulary) {
      throw DataError(fmt::format("{}: token {} is {}, outside the vocabulary of {}", info_.path,
                                  begin + static_cast<std::int64_t>(i), raw[i], info_.vocabulary));
    }
    tokens[i] = static_cast<std::int32_t>(raw[i]);
  }
}

}  // namespace trireme

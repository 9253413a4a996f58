#include "token_file.h"

#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

TokenFile::TokenFile(const TokenShardInfo& info) : info_(info) {}

const PosixFile& TokenFile::file() {
  const std::lock_guard lock(mutex_);
  if (!file_) file_.emplace(info_.path, O_RDONLY);
  return *file_;
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
    try {
      file().read(offset, raw.data(), raw.size() * sizeof(T));
    } catch (const RunFolderError& error) {
      throw DataError(error.what());  // it is the data that is to blame
    }
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

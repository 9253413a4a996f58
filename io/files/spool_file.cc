#include "io/files/spool_file.h"

#include <algorithm>

#include <unistd.h>

namespace trireme {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

SpoolFile::SpoolFile(std::string path) : file_(make_file_anew(path)) {
  buffer_.reserve(kBufferBytes);
}

SpoolFile::~SpoolFile() {
  ::unlink(file_.path().c_str());
}

void SpoolFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kBufferBytes - buffer_.size()));
    buffer_.insert(buffer_.end(), part.begin(), part.end());
    bytes = bytes.subspan(part.size());
    if (buffer_.size() == kBufferBytes) flush();
  }
}

void SpoolFile::flush() {
  file_.write(static_cast<std::int64_t>(written_), buffer_.data(), buffer_.size());
  written_ += buffer_.size();
  buffer_.clear();
}

void SpoolFile::sync() {
  flush();
  file_.sync();
}

void SpoolFile::read(std::uint64_t offset, std::span<std::byte> bytes) {
  flush();
  file_.read(static_cast<std::int64_t>(offset), bytes.data(), bytes.size());
}

}  // namespace trireme

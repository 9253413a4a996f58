#include "io/prepare/ahead_bytes.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 17;
constexpr int kMostBlocks = 16;

}  // namespace

std::size_t AheadBytes::read(char* to, std::size_t count) {
  if (!ahead_) {
    const std::size_t size = stream_->read(to, count);
    if (!begun_ && size == count) start();
    begun_ = true;
    return size;
  }
  std::size_t done = 0;
  while (done < count && (at_ < block_.size() || next_block())) {
    const std::size_t size = std::min(count - done, block_.size() - at_);
    std::copy_n(block_.data() + at_, size, to + done);
    at_ += size;
    done += size;
  }
  return done;
}

void AheadBytes::start() {
  const auto plan = [this](std::uint64_t) {
    return is_read_ ? std::nullopt : std::optional(std::vector<std::uint64_t>());
  };
  const auto read = [this](const std::vector<std::uint64_t>&) {
    std::string block(kBlockBytes, '\0');
    block.resize(stream_->read(block.data(), block.size()));
    is_read_ = block.size() < kBlockBytes;
    return block;
  };
  try {
    ahead_.emplace(plan, read, ReadAheadOptions{.batches_ahead = kMostBlocks, .threads = 1});
  } catch (const Error&) {
    ahead_.reset();  // the system gives no thread
  }
}

bool AheadBytes::next_block() {
  std::optional<std::string> block = ahead_->next();
  block_ = block ? std::move(*block) : std::string();
  at_ = 0;
  return !block_.empty();
}

}  // namespace trireme

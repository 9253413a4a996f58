#include "io/shards/token_shard_format.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace trireme {

struct RunningChecksum::State {
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> hash{XXH64_createState(),
                                                                  XXH64_freeState};
};

RunningChecksum::RunningChecksum() : state_(std::make_unique<State>()) {
  XXH64_reset(state_->hash.get(), 0);
}

RunningChecksum::~RunningChecksum() = default;

void RunningChecksum::add(const void* bytes, std::size_t count) {
  XXH64_update(state_->hash.get(), bytes, count);
}

std::string RunningChecksum::text() const {
  return checksum_text(XXH64_digest(state_->hash.get()));
}

std::uint64_t block_checksum(const void* bytes, std::size_t count) {
  return XXH3_64bits(bytes, count);
}

std::string checksum_text(std::uint64_t digest) {
  return fmt::format("xxh64:{:016x}", digest);
}

std::string checksum_of_model(const std::string& model) {
  return checksum_text(XXH64(model.data(), model.size(), 0));
}

}  // namespace trireme

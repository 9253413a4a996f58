// A stream that another thread reads ahead of its reader, so that unpacking costs no time of his.
#pragma once

#include <optional>
#include <string>

#include "trireme/io/read_ahead.h"

#include "io/prepare/byte_stream.h"

namespace trireme {

class AheadBytes final : public ByteStream {
 public:
  explicit AheadBytes(ByteStreamPtr stream) : stream_(std::move(stream)) {}

  // The first call reads by itself: a short stream needs no thread. Throws what the stream throws.
  std::size_t read(char* to, std::size_t count) override;

 private:
  void start();
  bool next_block();

  ByteStreamPtr stream_;
  bool begun_ = false;
  std::string block_;  // that is being given out, from at_ on
  std::size_t at_ = 0;
  bool is_read_ = false;                         // to its end; the thread's
  std::optional<ReadAhead<std::string>> ahead_;  // the last member: its thread uses the others
};

}  // namespace trireme

#include "io/prepare/document_stream.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

class NoSplit final : public Splitter {
 public:
  explicit NoSplit(ChunkSink sink) : sink_(std::move(sink)) {}
  void add(TextChunk&& chunk) override { sink_(std::move(chunk)); }
  void finish() override {}

 private:
  ChunkSink sink_;
};

// Everything is on one side.
class OneSide final : public Splitter {
 public:
  OneSide(bool validation, ChunkSink sink) : validation_(validation), sink_(std::move(sink)) {}
  void add(TextChunk&& chunk) override {
    chunk.validation = validation_;
    sink_(std::move(chunk));
  }
  void finish() override {}

 private:
  bool validation_;
  ChunkSink sink_;
};

class SplitAt final : public Splitter {
 public:
  SplitAt(std::uint64_t byte, ChunkSink sink) : left_(byte), sink_(std::move(sink)) {}
  void add(TextChunk&& chunk) override {
    if (held_out_ || chunk.bytes.size() <= left_) {
      left_ -= held_out_ ? 0 : chunk.bytes.size();
      chunk.validation = held_out_;
      sink_(std::move(chunk));
      return;
    }
    held_out_ = true;
    TextChunk before = chunk;
    before.bytes.resize(left_);
    before.ends = true;
    chunk.bytes.erase(0, left_);
    chunk.starts = chunk.validation = true;
    sink_(std::move(before));
    sink_(std::move(chunk));
  }
  void finish() override {}

 private:
  std::uint64_t left_;
  ChunkSink sink_;
  bool held_out_ = false;
};

bool is_held_out(std::string_view beginning, double fraction, std::uint64_t seed) {
  const std::uint64_t hash =
      XXH64(beginning.data(), std::min(beginning.size(), kHashedBytes), seed);
  return static_cast<double>(hash >> 11) * 0x1p-53 < fraction;
}

// Holds the beginning of a document until its split is decided.
class HashSplit final : public Splitter {
 public:
  HashSplit(double fraction, std::uint64_t seed, ChunkSink sink)
      : fraction_(fraction), seed_(seed), sink_(std::move(sink)) {}

  void add(TextChunk&& chunk) override {
    if (chunk.starts) {
      decided_ = false;
      beginning_ = {};
      beginning_.starts = true;
    }
    if (decided_) {
      chunk.validation = validation_;
      sink_(std::move(chunk));
      return;
    }
    beginning_.bytes += chunk.bytes;
    beginning_.ends = chunk.ends;
    if (beginning_.bytes.size() < kHashedBytes && !chunk.ends) return;
    validation_ = is_held_out(beginning_.bytes, fraction_, seed_);
    decided_ = true;
    beginning_.validation = validation_;
    sink_(std::move(beginning_));
  }
  void finish() override {}

 private:
  double fraction_;
  std::uint64_t seed_;
  ChunkSink sink_;
  TextChunk beginning_;
  bool decided_ = false;
  bool validation_ = false;
};

// Holds back the last `tail` bytes. Only the end of the text shows where they begin.
class TailSplit final : public Splitter {
 public:
  TailSplit(std::uint64_t tail, ChunkSink sink) : tail_(tail), sink_(std::move(sink)) {}

  void add(TextChunk&& chunk) override {
    bytes_ += chunk.bytes.size();
    held_.push_back(std::move(chunk));
    while (bytes_ - held_.front().bytes.size() >= tail_) release();
  }

  void finish() override {
    if (bytes_ <= tail_) {  // the text is no longer than its tail
      for (TextChunk& chunk : held_) chunk.validation = true;
      while (!held_.empty()) release();
      return;
    }
    std::uint64_t left = cut();  // bytes that still go to training
    while (!held_.empty()) {
      const TextChunk& front = held_.front();
      if (left == 0 && front.starts) break;
      // An empty chunk only marks the end of the document before it.
      if (front.bytes.size() <= left && (left > 0 || front.bytes.empty())) {
        left -= front.bytes.size();
        release();
      } else {
        divide_front(left);
        break;
      }
    }
    for (TextChunk& chunk : held_) chunk.validation = true;
    while (!held_.empty()) release();
  }

 private:
  void release() {
    bytes_ -= held_.front().bytes.size();
    sink_(std::move(held_.front()));
    held_.pop_front();
  }

  // The start of the validation split, in bytes from the first held byte: the first document that
  // starts in the first half of the tail, or, if there is none, the beginning of the tail.
  std::uint64_t cut() const {
    const std::uint64_t exact = bytes_ - tail_;
    std::uint64_t at = 0;
    for (const TextChunk& chunk : held_) {
      if (chunk.starts && at >= exact && at <= exact + tail_ / 2) return at;
      at += chunk.bytes.size();
    }
    return exact;
  }

  // Divides the first chunk after `left` bytes. Its document ends there, and the rest is a new one.
  void divide_front(std::uint64_t left) {
    TextChunk before;
    before.bytes = held_.front().bytes.substr(0, left);
    before.starts = held_.front().starts;
    before.ends = true;
    held_.front().bytes.erase(0, left);
    held_.front().starts = true;
    bytes_ -= left;
    sink_(std::move(before));
  }

  std::uint64_t tail_;
  ChunkSink sink_;
  std::deque<TextChunk> held_;
  std::uint64_t bytes_ = 0;
};

}  // namespace

void DocumentCutter::add(TextChunk&& chunk) {
  if (separator_.empty() || chunk.is_record) {
    emit(std::move(chunk.bytes), chunk.ends);
    return;
  }
  carry_ += chunk.bytes;
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = carry_.find(separator_, begin)) != std::string::npos;) {
    emit(carry_.substr(begin, end - begin), true);
    begin = end + separator_.size();
  }
  carry_.erase(0, begin);
  // All bytes, except those that may turn out to be the beginning of a separator.
  const std::size_t sure =
      chunk.ends ? carry_.size() : carry_.size() - std::min(carry_.size(), separator_.size() - 1);
  emit(carry_.substr(0, sure), chunk.ends);
  carry_.erase(0, sure);
}

void DocumentCutter::emit(std::string bytes, bool ends) {
  if (bytes.empty() && !(open_ && ends)) return;
  TextChunk chunk;
  chunk.bytes = std::move(bytes);
  chunk.starts = !open_;
  chunk.ends = ends;
  open_ = !ends;
  sink_(std::move(chunk));
}

std::unique_ptr<Splitter> make_splitter(const ValidationSplit& split, std::uint64_t seed,
                                        ChunkSink sink) {
  switch (split.rule) {
    case ValidationSplit::Rule::kHash:
      return std::make_unique<HashSplit>(split.fraction, seed, std::move(sink));
    case ValidationSplit::Rule::kTail:
      return std::make_unique<TailSplit>(split.bytes, std::move(sink));
    case ValidationSplit::Rule::kNone:
    case ValidationSplit::Rule::kClass:  // of pictures
      break;
  }
  return std::make_unique<NoSplit>(std::move(sink));
}

std::unique_ptr<Splitter> make_part_splitter(const ValidationSplit& split, std::uint64_t seed,
                                             std::string_view beginning, ChunkSink sink) {
  if (split.rule != ValidationSplit::Rule::kHash) return make_splitter(split, seed, sink);
  return std::make_unique<OneSide>(is_held_out(beginning, split.fraction, seed), std::move(sink));
}

std::unique_ptr<Splitter> make_splitter_at(std::uint64_t byte, ChunkSink sink) {
  return std::make_unique<SplitAt>(byte, std::move(sink));
}

void PieceMaker::add(TextChunk&& chunk) {
  if (chunk.starts) {
    piece_ = {};
    piece_.starts = true;
    looked_at_ = kPieceBytes;
  }
  piece_.validation = chunk.validation;
  piece_.bytes += chunk.bytes;
  while (piece_.bytes.size() > looked_at_) {
    const std::size_t size = tokenizer_.cut(std::string_view(piece_.bytes).substr(0, looked_at_));
    if (size == 0) {
      looked_at_ *= 2;
      if (looked_at_ > kMostUncutBytes) {
        throw DataError(
            fmt::format("{} MiB of a document have no place where the tokenizer ({}) can cut them: "
                        "is this text? "
                        "--document-separator cuts files into documents (read as far as {})",
                        kMostUncutBytes >> 20, tokenizer_.description(), shown(where_())));
      }
      continue;
    }
    looked_at_ = kPieceBytes;
    TextChunk full;
    full.bytes = piece_.bytes.substr(0, size);
    full.starts = piece_.starts;
    full.validation = piece_.validation;
    piece_.bytes.erase(0, size);
    piece_.starts = false;
    push(std::move(full));
  }
  if (chunk.ends) {
    piece_.ends = true;
    push(std::move(piece_));
    piece_ = {};
  }
}

void PieceMaker::push(TextChunk&& piece) {
  batch_bytes_ += piece.bytes.size() + 1;
  batch_.push_back(std::move(piece));
  if (batch_bytes_ >= kPieceBytes) flush();
}

void PieceMaker::finish() {
  if (!piece_.bytes.empty()) push(std::exchange(piece_, {}));
  flush();
}

void PieceMaker::flush() {
  if (!batch_.empty()) sink_(std::move(batch_));
  batch_ = {};
  batch_bytes_ = 0;
}

}  // namespace trireme

// The stages from files to documents, to a split, to pieces that are tokenised one by one. Each
// stage passes its output to the next through a function; finish() flushes what it still holds.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "trireme/io/prepare.h"

#include "io/prepare/text_source.h"

namespace trireme {

using ChunkSink = std::function<void(TextChunk&&)>;

// Cuts files at a separator, which belongs to no document, and leaves out empty documents.
class DocumentCutter {
 public:
  // `goes_on`: what comes is the rest of a document.
  DocumentCutter(std::string separator, ChunkSink sink, bool goes_on = false)
      : separator_(std::move(separator)), sink_(std::move(sink)), open_(goes_on) {}
  void add(TextChunk&& chunk);

 private:
  void emit(std::string bytes, bool ends);

  std::string separator_;
  ChunkSink sink_;
  std::string carry_;  // bytes that may begin a separator
  bool open_;          // a document has begun
};

// Marks the chunks that belong to the validation split.
class Splitter {
 public:
  virtual ~Splitter() = default;
  virtual void add(TextChunk&& chunk) = 0;
  virtual void finish() = 0;
};
std::unique_ptr<Splitter> make_splitter(const ValidationSplit& split, std::uint64_t seed,
                                        ChunkSink sink);

// The same for a part of a document whose first kHashedBytes, or all, are these.
inline constexpr std::size_t kHashedBytes = 65536;
std::unique_ptr<Splitter> make_part_splitter(const ValidationSplit& split, std::uint64_t seed,
                                             std::string_view beginning, ChunkSink sink);

// Holds out everything from that byte on, which lies in a document: it ends there, and another
// begins.
std::unique_ptr<Splitter> make_splitter_at(std::uint64_t byte, ChunkSink sink);

// A list of pieces that one thread tokenises at a time: about 1 MiB in all, unless a piece is
// longer because a word is.
using PieceBatch = std::vector<TextChunk>;

// Cuts documents of more than 1 MiB where that does not change their tokens, as Tokenizer::cut says
// of their first MiB, or, if it finds no place there, of twice as much, and so on up to 64 MiB. So
// the tokens of a document do not depend on the chunks in which it arrived.
class PieceMaker {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMostUncutBytes = std::size_t{64} << 20;
  static_assert(kPieceBytes % Tokenizer::kSegmentBytes == 0);

  // `where()`: how far the input has been read, for messages.
  PieceMaker(const Tokenizer& tokenizer, std::function<void(PieceBatch&&)> sink,
             std::function<std::string()> where)
      : tokenizer_(tokenizer), sink_(std::move(sink)), where_(std::move(where)) {}
  // Throws DataError if there is no place to cut.
  void add(TextChunk&& chunk);
  // A document that has not ended goes on elsewhere.
  void finish();

 private:
  void push(TextChunk&& piece);
  void flush();

  const Tokenizer& tokenizer_;
  std::function<void(PieceBatch&&)> sink_;
  std::function<std::string()> where_;
  TextChunk piece_;
  std::size_t looked_at_ = kPieceBytes;  // bytes in which a place to cut is looked for
  PieceBatch batch_;
  std::size_t batch_bytes_ = 0;
};

}  // namespace trireme

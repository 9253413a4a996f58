#include "io/tokenizers/sentencepiece_file.h"

#include <bit>
#include <cstdint>

namespace trireme {
namespace {

// Reads the fields of a message in the format of protocol buffers.
class Fields {
 public:
  explicit Fields(std::string_view message) : left_(message) {}

  // False: there is none, or the rest is no such field.
  bool next() {
    text = {};
    value = 0;
    std::uint64_t key = 0;
    if (left_.empty() || !read(key)) return false;
    number = key >> 3;
    if ((key & 7) == 0) return read(value);
    std::uint64_t size = (key & 7) == 1 ? 8 : 4;
    if ((key & 7) == 2 && !read(size)) return false;
    if (size > left_.size()) return false;
    text = left_.substr(0, size);
    left_.remove_prefix(size);
    return true;
  }

  std::uint64_t number = 0, value = 0;
  std::string_view text;

 private:
  bool read(std::uint64_t& made) {
    made = 0;
    for (int shift = 0; shift < 64 && !left_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(left_.front());
      left_.remove_prefix(1);
      made |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return true;
    }
    return false;
  }

  std::string_view left_;
};

// Fields of sentencepiece_model.proto.
constexpr std::uint64_t kPiece = 1, kTrainerSpec = 2, kNormalizerSpec = 3;  // of ModelProto
constexpr std::uint64_t kText = 1, kScore = 2, kType = 3;                   // of a piece
constexpr std::uint64_t kModel = 3, kSpacesAsSuffix = 24, kUnknown = 44;    // of TrainerSpec
constexpr std::uint64_t kName = 1, kMap = 2, kPrefix = 3, kStrips = 4,
                        kEscapes = 5;  // NormalizerSpec

// Numbers are little-endian.
float float_of(std::string_view bytes) {
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < 4 && i < bytes.size(); ++i) {
    bits |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  }
  return std::bit_cast<float>(bits);
}

SentencePieceFile::Piece piece_of(std::string_view message) {
  SentencePieceFile::Piece piece;
  for (Fields fields(message); fields.next();) {
    if (fields.number == kText) piece.text = fields.text;
    if (fields.number == kScore) piece.score = float_of(fields.text);
    if (fields.number == kType) piece.type = static_cast<SentencePieceFile::Type>(fields.value);
  }
  return piece;
}

}  // namespace

SentencePieceFile parse_sentencepiece_file(std::string_view model) {
  SentencePieceFile file;
  for (Fields fields(model); fields.next();) {
    if (fields.number == kPiece) file.pieces.push_back(piece_of(fields.text));
    if (fields.number == kTrainerSpec) {
      for (Fields trainer(fields.text); trainer.next();) {
        if (trainer.number == kModel) {
          file.model = static_cast<SentencePieceFile::Model>(trainer.value);
        }
        if (trainer.number == kUnknown) file.unknown = trainer.text;
        if (trainer.number == kSpacesAsSuffix) file.has_spaces_as_suffix = trainer.value != 0;
      }
    }
    if (fields.number != kNormalizerSpec) continue;
    for (Fields spec(fields.text); spec.next();) {
      if (spec.number == kName) file.normalizer = spec.text;
      if (spec.number == kMap) file.map = spec.text;
      if (spec.number == kPrefix) file.has_prefix = spec.value != 0;
      if (spec.number == kStrips) file.strips = spec.value != 0;
      if (spec.number == kEscapes) file.escapes = spec.value != 0;
    }
  }
  return file;
}

}  // namespace trireme

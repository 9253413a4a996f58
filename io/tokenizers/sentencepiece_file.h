// What the file of a SentencePiece model says (sentencepiece_model.proto), as far as we need it.
#pragma once

#include <string_view>
#include <vector>

namespace trireme {

struct SentencePieceFile {
  // Numbers are those of the format.
  enum class Model { kUnigram = 1, kBpe, kWord, kCharacter };
  enum class Type { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

  struct Piece {
    std::string_view text;
    float score = 0.0F;
    Type type = Type::kNormal;
  };

  std::vector<Piece> pieces;  // by token
  Model model = Model::kUnigram;
  bool has_spaces_as_suffix = false;
  std::string_view unknown = " \xe2\x81\x87 ";  // what texts have for an unknown piece
  std::string_view normalizer, map;             // its name and its map of characters
  bool has_prefix = true;                       // a space before each text
  bool strips = true;                           // spaces at both ends, and all but one of several
  bool escapes = true;                          // spaces become marks
};

// `model` is a serialised ModelProto, which SentencePiece has read. The result views it.
SentencePieceFile parse_sentencepiece_file(std::string_view model);

}  // namespace trireme

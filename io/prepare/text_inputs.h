// The files of a corpus, and how several readers share them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/io/prepare.h"

#include "io/files/input_files.h"
#include "io/prepare/text_entry.h"

namespace trireme {

struct TextInput {
  InputFile file;
  Named named = Named::kAlone;
  TextKind kind = TextKind::kOther;  // of what is no regular file: kOther
  bool json_lines = false;           // that need no decoding
  std::string words = {};            // what plain text looks like all the same, or nothing
  std::uint64_t row_groups = 0;      // of Parquet
};

struct TextInputs {
  std::vector<TextInput> files;
  LeftOut left_out;
  bool can_draw = true;           // all are regular files of plain text
  std::uint64_t bytes_total = 0;  // that will be read; 0: not known
};

// Throws DataError naming the input: of regular files that are no text, too.
TextInputs look_at_inputs(const PrepareOptions& options);

// For other ranks.
Json json_of(const LeftOut& left_out);
LeftOut left_out_of(const Json& json);
std::string packed(const TextInputs& inputs);
TextInputs unpacked_inputs(std::string_view text);

// What one reader takes: whole files, or a part of one.
struct InputPortion {
  std::size_t first = 0, end = 0;  // files
  // A part has one file: steps [part, part + 1) of it, each of so many bytes (of text) or row
  // groups (of Parquet). A step of 0: no part.
  std::uint64_t part = 0, step = 0;
  std::uint64_t bytes = 0;  // how much work it is

  bool is_part() const { return step > 0; }
};

InputPortion whole_of(const TextInputs& inputs);

// The input cut into portions, in its order, which follow from the files and the options alone.
std::vector<InputPortion> portions_of(const TextInputs& inputs, const PrepareOptions& options);

// Which of `ranks` reads each portion: each gets about as many bytes.
std::vector<int> readers_of(const std::vector<InputPortion>& portions, int ranks);

}  // namespace trireme

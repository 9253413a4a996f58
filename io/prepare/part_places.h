// Where the parts of a file begin that several readers share.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "trireme/io/tokenizer.h"

#include "io/prepare/text_inputs.h"

namespace trireme {

// The bytes [first, second) of a part of a text, which follow from the file, the step, the
// separator and the tokenizer alone, so that the parts of a file are its bytes, each once. A part
// begins behind a newline (JSON Lines), behind a separator that no other overlaps, or, where a file
// is one document, where the tokenizer cuts it. If there is no such place near its beginning, it is
// empty, and the part before goes on. Throws DataError.
std::pair<std::uint64_t, std::uint64_t> bytes_of_part(const TextInput& input,
                                                      const InputPortion& portion,
                                                      const std::string& separator,
                                                      const Tokenizer* tokenizer);

}  // namespace trireme

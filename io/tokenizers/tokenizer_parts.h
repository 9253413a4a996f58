// Reads the parts of a tokenizer.json. All throw DataError, which begins with `origin` and names
// what is not supported, and JsonError for a member that is missing or of another type.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/json.h"

#include "io/tokenizers/decoder.h"
#include "io/tokenizers/normalizers.h"
#include "io/tokenizers/pre_tokenizers.h"

namespace trireme {

// A member that a file may leave out, or have as null: nullptr.
const Json* given(const Json& object, std::string_view key);
bool flag(const Json& object, std::string_view key, bool otherwise);

// Refuses a part of which `option` is not what we do.
void require_part(bool holds, std::string_view part, std::string_view option,
                  const std::string& origin);

Normalizers read_normalizers(const Json* part, const std::string& origin);

struct ReadPreTokenizers {
  PreTokenizers pre_tokenizers;
  bool is_byte_level = false;  // words become bytes
};
ReadPreTokenizers read_pre_tokenizers(const Json* part, const std::string& origin);

Decoder read_decoder(const Json* part, const std::string& origin);

}  // namespace trireme

// Records of JSON, parsed by simdjson.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/prepare/byte_stream.h"
#include "io/prepare/record_source.h"

namespace trireme {

// JSON Lines: an object on each line; empty lines are left out. A name such as meta.body is that of
// a member, or else of the member body of the object meta. Numbers that are not asked for may have
// any size, or be Python's NaN and Infinity.
std::unique_ptr<RecordSource> make_json_lines(std::string file, ByteStreamPtr stream,
                                              std::vector<std::string> names);

// One array of objects, which may go over many lines.
std::unique_ptr<RecordSource> make_json_array(std::string file, ByteStreamPtr stream,
                                              std::vector<std::string> names);

// One object, which may go over many lines.
std::unique_ptr<RecordSource> make_json_object(std::string file, ByteStreamPtr stream,
                                               std::vector<std::string> names);

// The keys of a text that is one object, and whether it has the names; of an array of objects those
// of the first one that has them, or else of the first one; nothing where it is neither.
struct JsonKeys {
  std::vector<std::string> keys;
  bool has_all = false;
};
std::optional<JsonKeys> json_keys(std::string_view text, const std::vector<std::string>& names);

}  // namespace trireme

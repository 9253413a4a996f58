// Records of JSON, parsed by simdjson.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "io/prepare/byte_stream.h"
#include "io/prepare/record_source.h"

namespace trireme {

// JSON Lines: an object on each line; empty lines are left out. A name such as meta.body is that of
// a member, or else of the member body of the object meta.
std::unique_ptr<RecordSource> make_json_lines(std::string file, ByteStreamPtr stream,
                                              std::vector<std::string> names);

// One array of objects, which may go over many lines.
std::unique_ptr<RecordSource> make_json_array(std::string file, ByteStreamPtr stream,
                                              std::vector<std::string> names);

}  // namespace trireme

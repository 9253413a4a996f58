// Outputs that the user names (trireme/io/output_file.h).
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/comm/runtime.h"
#include "trireme/io/output_file.h"

namespace trireme::cli {

// Called with all outputs of a command before it prints. Where one of them is standard output (-),
// lines for people go to standard error. Throws ConfigError where one name is given for several.
void begin_outputs(std::initializer_list<std::string_view> paths);
// Throws ConfigError where an output would replace a file that the command reads.
void keep_inputs(std::initializer_list<std::string_view> inputs,
                 std::initializer_list<std::string_view> outputs);

// One of them, taken before the work whose results it gets, so that what cannot be written is told
// before that work is done. Members throw RunFolderError.
class NamedOutput {
 public:
  explicit NamedOutput(const std::string& path);  // empty: there is none, and members do nothing
  // Collective over the world. The leading rank takes it; for others there is none.
  NamedOutput(Runtime& runtime, const std::string& path);

  bool is_there() const { return file_.has_value(); }
  void write(std::string_view bytes);
  void finish();  // an earlier file is replaced
  void write_whole(std::string_view text) {
    write(text);
    finish();
  }
  // Collective over the world. Writes the leading rank's text.
  void write_whole(Runtime& runtime, std::string_view text);

 private:
  std::optional<OutputFile> file_;
};

}  // namespace trireme::cli

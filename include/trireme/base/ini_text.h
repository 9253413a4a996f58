// Edits INI text, as Options reads it (options.h), without knowing its keys.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

struct IniLine {
  std::string name;   // with its section: "run.folder"
  std::string value;  // without quotes
  std::string where;  // "run.ini:3", for messages
};

// Returns the value that a setting shall have; nothing to leave it out.
using IniEdit = std::function<std::optional<std::string>(const IniLine& setting)>;

// Returns the text with edited settings. Each stays on its line; one that is left out becomes a
// comment. `origin` names the text. Throws ConfigError for a line that is none.
std::string edit_ini(std::string_view text, const std::string& origin, const IniEdit& edit);

}  // namespace trireme

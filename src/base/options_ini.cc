// Reads INI text. Boost's own reader reports no line numbers and cuts values at any #.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/ini_text.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

constexpr const char* kAuto = "auto";  // the text of a value that follows from elsewhere

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

bool is_comment(std::string_view text) {
  return text.empty() || text.front() == '#' || text.front() == ';';
}

// Returns the text inside "...". Returns nothing if the quotes do not close, or if something other
// than a comment follows.
std::optional<std::string> unquote(std::string_view text) {
  std::string result;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (!is_comment(trim(text.substr(i + 1)))) return {};
      return result;
    }
    if (text[i] == '\\' && i + 1 < text.size()) {
      ++i;
      result += text[i] == 'n' ? '\n' : text[i];
    } else {
      result += text[i];
    }
  }
  return {};
}

std::optional<std::string> ini_value(std::string_view text) {
  if (text.starts_with('"')) return unquote(text);
  if (text.starts_with('#')) return "";
  for (std::size_t i = 1; i < text.size(); ++i) {
    const bool after_space = text[i - 1] == ' ' || text[i - 1] == '\t';
    if (text[i] == '#' && after_space) return std::string(trim(text.substr(0, i)));
  }
  return std::string(text);
}

std::string quote_if_needed(const std::string& value) {
  const bool plain = !value.empty() && trim(value) == value && value.front() != '"' &&
                     value.find_first_of("#\n") == std::string::npos;
  if (plain) return value;
  std::string result = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\n' ? std::string("\\n") : std::string(1, c);
  }
  return result + '"';
}

std::string section_of(const std::string& name) {
  const std::size_t dot = name.find('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

// Returns the text that gives a key its value, which may be none. Returns nothing where a key that
// is not set has no value either.
std::optional<std::string> text_to_set(std::optional<std::string> value,
                                       const std::string& default_text) {
  if (!value && default_text != kAuto) return kAuto;
  return value;
}

// A line "key = value" of INI text.
struct IniSetting {
  std::string section, name;  // the name with its section
  std::string_view text;      // of the value
  std::string where;          // for errors
  int line = 0;
};

template <class Visit>
void for_each_setting(std::string_view text, const std::string& origin, const Visit& visit) {
  std::string section;
  int line_number = 0;
  while (!text.empty()) {
    const std::size_t newline = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, newline));
    text.remove_prefix(std::min(newline + 1, text.size()));
    const std::string where = fmt::format("{}:{}", origin, ++line_number);
    if (is_comment(line)) continue;
    if (line.front() == '[' && line.back() == ']') {
      section = trim(line.substr(1, line.size() - 2));
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw ConfigError(
          fmt::format("{}: '{}' is neither 'key = value' nor '[section]'", where, shown(line)));
    }
    const std::string key(trim(line.substr(0, equals)));
    visit(IniSetting{section, section.empty() ? key : section + "." + key,
                     trim(line.substr(equals + 1)), where, line_number});
  }
}

}  // namespace

std::string edit_ini(std::string_view text, const std::string& origin, const IniEdit& edit) {
  std::string result;
  std::size_t copied = 0;  // of the text
  const auto copy_up_to = [&](std::size_t end) {
    result += text.substr(copied, end - copied);
    copied = end;
  };
  for_each_setting(text, origin, [&](const IniSetting& setting) {
    const auto value = ini_value(setting.text);
    if (!value) return;
    const auto now = edit({setting.name, *value, setting.where});
    if (now == value) return;
    const auto begin = static_cast<std::size_t>(setting.text.data() - text.data());
    if (now) {
      copy_up_to(begin);
      result += quote_if_needed(*now);
      copied = begin + setting.text.size();
    } else {
      const std::size_t newline = text.rfind('\n', begin);
      copy_up_to(newline == std::string_view::npos ? 0 : newline + 1);
      result += '#';
    }
  });
  copy_up_to(text.size());
  return result;
}

void Options::refuse_ini_key(const std::string& name, const std::string& where) const {
  std::vector<std::string> known;
  for (const Key& key : keys_) {
    if (!section_of(key.name).empty()) known.push_back(key.name);
  }
  if (const std::string others = other_values_with(name); !others.empty()) {
    throw ConfigError(fmt::format("{}: {} {}", where, name, others));
  }
  throw ConfigError(
      fmt::format("{}: unknown key {}; {}", where, shown(name), suggestion(name, "", known)));
}

// Finds a setting before the table of keys is known to be whole, so the rest is not checked.
std::optional<Options::Setting> Options::first_line(std::string_view text,
                                                    const std::string& origin,
                                                    std::size_t key) const {
  std::optional<Setting> found;
  for_each_setting(text, origin, [&](const IniSetting& setting) {
    const auto value = ini_value(setting.text);
    if (found || !value || setting.name != keys_[key].name) return;
    found = {key, *value, fmt::format("{}: {} = {}", setting.where, setting.name, shown(*value))};
  });
  return found;
}

void Options::parse_ini(std::string_view text, const std::string& origin) {
  if (selector_) {
    if (const auto line = first_line(text, origin, selector_->key)) select(*line);
  }
  read_ini(text, origin);
}

void Options::read_ini(std::string_view text, const std::string& origin) {
  std::map<std::size_t, int> lines;  // where each key was set
  for_each_setting(text, origin, [&](const IniSetting& setting) {
    if (!setting.section.empty() && setting.section == ignored_section_) return;
    const auto key = find(setting.name);
    if (!key || section_of(setting.name).empty()) refuse_ini_key(setting.name, setting.where);
    const auto value = ini_value(setting.text);
    if (!value) {
      throw ConfigError(
          fmt::format("{}: {}: the quotes do not close", setting.where, setting.name));
    }
    const auto [first, is_new] = lines.emplace(*key, setting.line);
    if (!is_new) {
      throw ConfigError(fmt::format("{}: {} was set in line {} already", setting.where,
                                    setting.name, first->second));
    }
    apply({*key, *value, fmt::format("{}: {} = {}", setting.where, setting.name, shown(*value))});
  });
}

std::set<std::string> Options::take_over(std::string_view text, const std::string& origin) {
  if (selector_) {
    const auto line = first_line(text, origin, selector_->key);
    if (line && keys_[line->key].read(line->value).empty()) declare_selected();
  }
  std::set<std::string> taken;
  for_each_setting(text, origin, [&](const IniSetting& setting) {
    const auto key = find(setting.name);
    const auto value = ini_value(setting.text);
    if (key && value && keys_[*key].read(*value).empty()) taken.insert(setting.name);
  });
  return taken;
}

std::string Options::value_of(const std::string& name) const {
  const auto key = find(name);
  TRIREME_CHECK(key.has_value(), fmt::format("there is no key {}", name));
  return keys_[*key].written().value_or(kAuto);
}

std::vector<std::string> Options::to_flags() const {
  std::vector<std::string> flags;
  for (const Key& key : keys_) {
    const auto value = text_to_set(key.written(), key.default_text);
    if (section_of(key.name).empty() || !value || *value == key.default_text) continue;
    flags.push_back(fmt::format("--{}={}", key.name, *value));
  }
  return flags;
}

std::string Options::to_ini() const {
  std::string text, section;
  for (const Key& key : keys_) {
    const std::string own = section_of(key.name);
    const auto value = text_to_set(key.written(), key.default_text);
    if (own.empty() || !value || key.on_change == OnChange::kOfStart) continue;
    if (own != section) {
      text += fmt::format("{}[{}]\n", text.empty() ? "" : "\n", own);
      section = own;
    }
    text += fmt::format("{} = {}\n", key.name.substr(own.size() + 1), quote_if_needed(*value));
  }
  return text;
}

}  // namespace trireme

#include "trireme/base/options.h"

#include <algorithm>
#include <span>

#include <boost/program_options.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"

namespace trireme {
namespace {

namespace po = boost::program_options;

// Returns the option that Boost complains about, without its dashes.
std::string name_in(const po::error_with_option_name& fault) {
  std::string name = fault.get_option_name();
  name.erase(0, name.find_first_not_of('-'));
  return name.substr(0, name.find('='));
}

}  // namespace

std::string read_config_file(const std::string& path) {
  return read_small_file("--config", path);
}

Options::Options(std::string usage, bool takes_config_file)
    : usage_(std::move(usage)), takes_config_file_(takes_config_file) {
  if (takes_config_file_) {
    add("config", config_file_, "", "INI file to read before the flags, which win over it",
        not_empty());
    keys_.back().default_text = "none";
    paths({"config"});
  }
}

void Options::add_key(Key key) {
  TRIREME_CHECK(!find(key.name), fmt::format("the option {} is declared twice", key.name));
  keys_.push_back(std::move(key));
}

void Options::alias(const std::string& name, const std::string& key) {
  TRIREME_CHECK(find(key) && !find(name), fmt::format("{} cannot stand for {}", name, key));
  aliases_.push_back({name, key});
}

void Options::paths(std::initializer_list<std::string_view> names, PathForm form) {
  for (const std::string_view name : names) {
    const auto key = find(name);
    TRIREME_CHECK(key.has_value(), fmt::format("there is no key {}", name));
    keys_[*key].paths = form;
  }
}

void Options::add_positional(const std::string& name, std::vector<std::string>& target,
                             const std::string& help, std::vector<std::string> first_choices) {
  positional_ = Positional{{name, help, std::move(first_choices)}, &target};
}

std::vector<OptionDescription> Options::keys() const {
  std::vector<OptionDescription> result(keys_.begin(), keys_.end());
  for (const Alias& alias : aliases_) result[*find(alias.key)].aliases.push_back(alias.name);
  if (!selector_) return result;
  for (std::size_t i = selector_->first; i < selector_->last; ++i) {
    result[i].only_with = fmt::format("{} {}", keys_[selector_->key].name, selector_->value);
  }
  return result;
}

CommandDescription Options::description() const {
  CommandDescription result{usage_, positional_, keys()};
  if (!selector_ || selector_->chosen) return result;
  const Key& selector = keys_[selector_->key];
  std::vector<OptionDescription> others;
  for (const std::string& value : selector.choices) {
    if (value == selector_->value) continue;
    const std::vector<OptionDescription> keys = keys_with(value);
    others.insert(others.end(), keys.begin(), keys.end());
  }
  result.options.insert(result.options.begin() + static_cast<std::ptrdiff_t>(selector_->last),
                        others.begin(), others.end());
  return result;
}

std::optional<std::size_t> Options::find(std::string_view flag) const {
  for (const Alias& alias : aliases_) {
    if (alias.name == flag) flag = alias.key;
  }
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i].name == flag) return i;
  }
  return {};
}

std::vector<std::string> Options::names() const {
  std::vector<std::string> result;
  for (const Key& key : keys_) result.push_back(key.name);
  return result;
}

std::vector<std::string> Options::flag_names() const {
  std::vector<std::string> result{"help"};
  for (const Alias& alias : aliases_) result.push_back(alias.name);
  const std::vector<std::string> keys = names();
  result.insert(result.end(), keys.begin(), keys.end());
  return result;
}

std::string Options::suggestion(std::string_view unknown, std::string_view prefix,
                                const std::vector<std::string>& known) const {
  if (const auto nearest = nearest_name(unknown, known)) {
    return fmt::format("did you mean {}{}?", prefix, *nearest);
  }
  const std::size_t dot = unknown.find('.');
  std::vector<std::string> siblings;
  for (const std::string& name : known) {
    if (dot == std::string_view::npos || !name.starts_with(unknown.substr(0, dot + 1))) continue;
    siblings.push_back(name.substr(dot + 1));
  }
  if (siblings.empty()) return "--help lists them all";
  return fmt::format("{} has {}", unknown.substr(0, dot), fmt::join(siblings, ", "));
}

// A switch needs no value: "--model.tied" means "--model.tied=true". If a command takes arguments
// without a flag, only true or false after the switch is its value: "prune --superseded run".
std::vector<std::string> Options::complete_switches(
    const std::vector<std::string>& arguments) const {
  std::vector<std::string> result = arguments;
  for (std::size_t i = 0; i < result.size() && arguments[i] != "--"; ++i) {
    const auto key = arguments[i].starts_with("--") ? find(arguments[i].substr(2)) : std::nullopt;
    if (!key || keys_[*key].placeholder != value_placeholder(bool())) continue;
    const std::string next = i + 1 < arguments.size() ? arguments[i + 1] : "--";
    const bool is_value = !positional_ || next == "true" || next == "false";
    const bool value_follows = is_value && !next.starts_with("--");
    if (!value_follows) result[i] += "=true";
  }
  return result;
}

std::vector<Options::Setting> Options::read_flags(const std::vector<std::string>& arguments) {
  po::options_description description;
  for (const std::string& name : flag_names()) {
    description.add_options()(name.c_str(), po::value<std::string>());
  }
  std::vector<Setting> settings;
  std::vector<std::string> positionals;
  using Style = po::command_line_style::style_t;
  // Accepts no shortened names, because a new key must not change what a command line means.
  constexpr int kStyle = Style::allow_long | Style::long_allow_next | Style::long_allow_adjacent;
  try {
    const auto parsed = po::command_line_parser(complete_switches(arguments))
                            .options(description)
                            .style(kStyle)
                            .run();
    for (const auto& option : parsed.options) {
      if (option.position_key >= 0) {
        positionals.insert(positionals.end(), option.value.begin(), option.value.end());
        continue;
      }
      // Boost would accept "--other=value" as a value. A text that begins like that needs "=".
      if (option.original_tokens.size() > 1 && option.value.at(0).starts_with("--")) {
        throw ConfigError(fmt::format("--{}: a value must follow", option.string_key));
      }
      const std::size_t key = *find(option.string_key);
      std::erase_if(settings, [&](const Setting& earlier) { return earlier.key == key; });
      settings.push_back({key, option.value.at(0),
                          fmt::format("--{} {}", option.string_key, shown(option.value.at(0)))});
    }
  } catch (const po::unknown_option& fault) {
    const std::string name = name_in(fault);
    if (const std::string others = other_values_with(name); !others.empty()) {
      throw ConfigError(fmt::format("--{} {}", name, others));
    }
    throw ConfigError(
        fmt::format("unknown flag --{}; {}", shown(name), suggestion(name, "--", flag_names())));
  } catch (const po::invalid_syntax& fault) {
    throw ConfigError(fmt::format("--{}: a value must follow", shown(name_in(fault))));
  } catch (const po::error& fault) {
    throw ConfigError(fault.what());
  }
  if (!positional_ && !positionals.empty()) {
    throw ConfigError(fmt::format(
        "unexpected argument '{}': values follow a flag, as in --KEY VALUE; --help lists them",
        shown(positionals.front())));
  }
  if (positional_) *positional_->target = std::move(positionals);
  return settings;
}

void Options::add_selector(const std::string& name, std::string& target, OptionValues& values,
                           const std::string& help, const Limit& limit, OnChange on_change,
                           DeclareSelected declare) {
  TRIREME_CHECK(!selector_, fmt::format("{} is the second key that decides on others", name));
  add(name, target, "", help, limit, on_change);
  const std::size_t first = keys_.size();
  selector_ = Selector{first - 1, first, first, &values, std::move(declare), target};
  selector_->declare(*this, target, values);
  selector_->last = keys_.size();
}

// Returns the keys that there would be with this value of the selector.
std::vector<OptionDescription> Options::keys_with(const std::string& value) const {
  Options other("");
  OptionValues none;
  selector_->declare(other, value, none);
  std::vector<OptionDescription> result = other.keys();
  for (OptionDescription& key : result) {
    key.only_with = fmt::format("{} {}", keys_[selector_->key].name, value);
  }
  return result;
}

// Says with which values of the selector there is a key of this name, if it is not the present one:
// "is a key of shape.kind square, not of circle". Empty if there is no such value.
std::string Options::other_values_with(std::string_view name) const {
  if (!selector_) return {};
  const Key& selector = keys_[selector_->key];
  std::vector<std::string> values;
  for (const std::string& value : selector.choices) {
    const auto keys = keys_with(value);
    if (std::ranges::find(keys, name, &OptionDescription::name) != keys.end()) {
      values.push_back(value);
    }
  }
  if (values.empty()) return {};
  return fmt::format("is a key of {} {}, not of {}", selector.name, fmt::join(values, ", "),
                     selector_->value);
}

// Applies the value of the key that decides on others, and declares these.
void Options::select(const Setting& setting) {
  apply(setting);
  selector_->chosen = true;
  declare_selected();
}

void Options::declare_selected() {
  const std::string value = *keys_[selector_->key].written();
  if (value == selector_->value) return;
  selector_->value = value;
  selector_->values->clear();
  const auto at = [this](std::size_t i) { return keys_.begin() + static_cast<std::ptrdiff_t>(i); };
  keys_.erase(at(selector_->first), at(selector_->last));
  const std::size_t rest = keys_.size();
  selector_->declare(*this, value, *selector_->values);
  const std::size_t added = keys_.size() - rest;
  std::rotate(at(selector_->first), at(rest), keys_.end());
  selector_->last = selector_->first + added;
}

// Finds a flag before the table of keys is known to be whole, so the rest is not checked.
std::optional<Options::Setting> Options::last_flag(const std::vector<std::string>& arguments,
                                                   std::size_t key) const {
  const std::string flag = "--" + keys_[key].name;
  std::optional<Setting> found;
  for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    const std::string& argument = arguments[i];
    const bool adjacent = argument.starts_with(flag + "=");
    const bool value_follows = i + 1 < arguments.size() && !arguments[i + 1].starts_with("--");
    if (!adjacent && (argument != flag || !value_follows)) continue;
    std::string value = adjacent ? argument.substr(flag.size() + 1) : arguments[i + 1];
    std::string where = fmt::format("{} {}", flag, shown(value));
    found = Setting{key, std::move(value), std::move(where)};
  }
  return found;
}

namespace {

// "-h" behind a flag is its value.
bool asks_for_help(std::span<const std::string> arguments) {
  for (std::size_t i = 0; i < arguments.size() && arguments[i] != "--"; ++i) {
    if (arguments[i] == "--help") return true;
    const std::string_view before = i == 0 ? std::string_view() : arguments[i - 1];
    const bool is_value = before.starts_with("--") && before.find('=') == before.npos;
    if (arguments[i] == "-h" && !is_value) return true;
  }
  return false;
}

}  // namespace

void Options::parse(const std::vector<std::string>& arguments, const ConfigReader& read) {
  help_requested_ = asks_for_help(arguments);
  const std::optional<Setting> selected =
      selector_ ? last_flag(arguments, selector_->key) : std::nullopt;
  if (selected) select(*selected);
  if (help_requested_) return;
  std::optional<std::string> text;  // of the file
  const auto file = takes_config_file_ ? last_flag(arguments, *find("config")) : std::nullopt;
  if (selector_ && !selected && file) {
    apply(*file);
    text = read(config_file_);
    if (const auto line = first_line(*text, config_file_, selector_->key)) select(*line);
  }
  const std::vector<Setting> settings = read_flags(arguments);
  for (const Setting& setting : settings) {
    if (!takes_config_file_ || keys_[setting.key].name != "config") continue;
    apply(setting);
    if (!text) text = read(config_file_);
    read_ini(*text, config_file_);
  }
  for (const Setting& setting : settings) {
    apply(setting);
    const std::string& name = keys_[setting.key].name;
    if (given_.contains(name)) given_by_flags_.insert(name);
  }
}

void refuse_value(std::string_view section, const OptionValues::value_type& entry,
                  const std::string& problem) {
  throw ConfigError(
      fmt::format("{}.{} {}: {}", section, entry.first, shown(entry.second), problem));
}

void Options::apply(const Setting& setting) {
  const Key& key = keys_[setting.key];
  const bool has_section = key.name.find('.') != std::string::npos;
  std::string value = setting.value;
  std::string problem =
      expand_paths(value, key.paths, has_section ? variables_ : PathVariables::kAll);
  if (problem.empty()) problem = key.read(value);
  if (!problem.empty()) throw ConfigError(fmt::format("{}: {}", setting.where, problem));
  if (value == "auto") {
    given_.erase(key.name);
  } else {
    given_.insert(key.name);
  }
}

}  // namespace trireme

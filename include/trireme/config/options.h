// The options of a command: one table of keys, bound to variables, from which flags, INI files,
// --help and the INI writer follow.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/dataset.h"

namespace trireme {

// What a value must satisfy beyond its type.
struct Limit {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool excludes_least = false;
  bool excludes_most = false;
  bool not_empty = false;            // of texts
  std::vector<std::string> choices;  // of texts; empty: any
};
Limit at_least(double least);
Limit above(double least);
Limit at_least_and_below(double least, double most);
Limit between(double least, double most);  // both of them included
Limit one_of(std::vector<std::string> choices);
Limit not_empty();

// Turn text into a value and back. read_value returns what is wrong, in words that go on after
// "NAME VALUE: ", or nothing and sets `value`. write_value of a value reads back as the same value.
// A list of paths is "PATH" (weight 1) or "PATH=WEIGHT", joined by commas; a backslash takes its
// meaning from the next character.
std::string read_value(std::string_view text, bool& value, const Limit& limit);
std::string read_value(std::string_view text, int& value, const Limit& limit);
std::string read_value(std::string_view text, std::int64_t& value, const Limit& limit);
std::string read_value(std::string_view text, double& value, const Limit& limit);
std::string read_value(std::string_view text, std::string& value, const Limit& limit);
std::string read_value(std::string_view text, std::vector<WeightedPath>& value, const Limit& limit);
std::string write_value(bool value);
std::string write_value(int value);
std::string write_value(std::int64_t value);
std::string write_value(double value);
std::string write_value(const std::string& value);
std::string write_value(const std::vector<WeightedPath>& value);

// What it means for a run that goes on when a key has another value than before.
enum class OnChange {
  kNotOfRuns,  // no key of a run
  kNothing,    // no result changes: paths, what is logged, how often a checkpoint is written
  kRounding,   // results agree to rounding
  kResults,    // results change
  kOtherRun,   // it is another run: the user must agree
  kCompared,   // what it comes to is compared instead: grid, device, contents of the data
};

// What a user is told of a key. `default_text` is "auto" where the value follows from elsewhere.
struct OptionDescription {
  std::string name, unit, help, default_text;
  std::string placeholder;  // what stands for the value: "N", "X", "TEXT", "true|false", ...
  std::vector<std::string> choices = {};  // empty: any value
  std::vector<std::string> aliases = {};
  OnChange on_change = OnChange::kNotOfRuns;
};

// What a user is told of a command: --help, the manual page and the shells' completions are written
// from it.
struct CommandDescription {
  struct Positional {
    std::string name, help;
    std::vector<std::string> first_choices;  // of the first such argument; empty: any
  };
  std::string usage;
  std::optional<Positional> positional;
  std::vector<OptionDescription> options;
};

// The text of --help.
std::string help_text(const CommandDescription& command);

// The text of the file that --config names. Throws ConfigError.
using ConfigReader = std::function<std::string(const std::string& path)>;
std::string read_config_file(const std::string& path);

// All errors are ConfigErrors of one line: where the value stands ("--run.steps 0", or
// "run.ini:3: run.steps = 0"), what is wrong, what would be right.
class Options {
 public:
  // `usage` stands above the keys in help(): "trireme train [--KEY VALUE]...". With
  // `takes_config_file` the flag --config FILE reads an INI file; flags win over it.
  explicit Options(std::string usage, bool takes_config_file = false);

  // Declares a key. Its default is the value of `target` now; parsing writes to `target`, which
  // must outlive this object. A name with a dot, "section.key", is a flag and a key of INI files; a
  // name without is a flag alone. `unit` may be empty. Keys of a section are declared together.
  template <class T>
  void add(const std::string& name, T& target, const std::string& unit, const std::string& help,
           const Limit& limit = {}, OnChange on_change = OnChange::kNotOfRuns) {
    add_key(
        {{name, unit, help, write_value(target), placeholder(target), limit.choices, {}, on_change},
         [&target, limit](std::string_view text) { return read_value(text, target, limit); },
         [&target] { return std::optional<std::string>(write_value(target)); }});
  }
  // Where no value is given it follows from elsewhere; `auto` says so explicitly.
  template <class T>
  void add(const std::string& name, std::optional<T>& target, const std::string& unit,
           const std::string& help, const Limit& limit = {},
           OnChange on_change = OnChange::kNotOfRuns) {
    add_key({{name,
              unit,
              help,
              target ? write_value(*target) : "auto",
              placeholder(T()),
              limit.choices,
              {},
              on_change},
             [&target, limit](std::string_view text) {
               T value{};
               const bool automatic = text == "auto";
               const std::string problem = automatic ? "" : read_value(text, value, limit);
               if (problem.empty()) target = automatic ? std::nullopt : std::optional<T>(value);
               return problem;
             },
             [&target] {
               return target ? std::optional<std::string>(write_value(*target)) : std::nullopt;
             }});
  }
  // A second name for the flag of a key: alias("threads", "run.threads").
  void alias(const std::string& name, const std::string& key);
  // Arguments that are not flags; without this they are errors. `first_choices` are words that the
  // first of them may be: they are told to the user, and not checked here.
  void add_positional(const std::string& name, std::vector<std::string>& target,
                      const std::string& help, std::vector<std::string> first_choices = {});

  // Reads the arguments after the command's name, and the file of --config before it applies them,
  // by `read`. Where --help is among them nothing else is read or checked.
  void parse(const std::vector<std::string>& arguments,
             const ConfigReader& read = read_config_file);
  bool help_requested() const { return help_requested_; }

  // Reads INI text; `origin` names it in errors. A line is "[section]", "key = value", empty or a
  // comment that starts with # or ;. A value ends at a # after a space; "..." keeps all, with \",
  // \\ and \n inside.
  void parse_ini(std::string_view text, const std::string& origin);
  // Keys of this section in INI files belong to another command: they are passed over.
  void ignore_section(const std::string& section) { ignored_section_ = section; }
  // The values that are not the defaults, as flags: "--model.layers=8".
  std::vector<std::string> to_flags() const;
  // Takes over what of INI text is a key of this table and a value that it may have: text that
  // another version wrote. Returns the names of these keys.
  std::set<std::string> take_over(std::string_view text, const std::string& origin);
  // The value of a key now, as text; "auto" where it follows from elsewhere.
  std::string value_of(const std::string& name) const;
  // The values now, as INI text that parses back to them. Values that follow from elsewhere are
  // left out.
  std::string to_ini() const;

  CommandDescription description() const;
  std::string help() const { return help_text(description()); }
  std::vector<std::string> names() const;  // of all keys, in order of declaration

 private:
  struct Key : OptionDescription {
    std::function<std::string(std::string_view)> read;    // what is wrong, or nothing
    std::function<std::optional<std::string>()> written;  // none: follows from elsewhere
  };
  struct Alias {
    std::string name, key;
  };
  struct Positional : CommandDescription::Positional {
    std::vector<std::string>* target;
  };
  struct Setting {
    std::size_t key;
    std::string value, where;
  };

  static std::string placeholder(bool) { return "true|false"; }
  static std::string placeholder(std::int64_t) { return "N"; }
  static std::string placeholder(int) { return "N"; }
  static std::string placeholder(double) { return "X"; }
  static std::string placeholder(const std::string&) { return "TEXT"; }
  static std::string placeholder(const std::vector<WeightedPath>&) { return "PATH[=WEIGHT],..."; }

  void add_key(Key key);
  std::optional<std::size_t> find(std::string_view flag) const;  // by name or alias
  std::vector<std::string> flag_names() const;
  std::string suggestion(std::string_view unknown, std::string_view prefix,
                         const std::vector<std::string>& known) const;
  std::vector<std::string> complete_switches(const std::vector<std::string>& arguments) const;
  std::vector<Setting> read_flags(const std::vector<std::string>& arguments);
  void apply(const Setting& setting);
  [[noreturn]] void refuse_ini_key(const std::string& name, const std::string& where) const;

  std::string usage_;
  bool takes_config_file_;
  std::string config_file_, ignored_section_;
  bool help_requested_ = false;
  std::vector<Key> keys_;
  std::vector<Alias> aliases_;
  std::optional<Positional> positional_;
};

// The entry of `known` nearest to `name` by edit distance, where it is near enough to be a slip of
// the pen; an entry's last component may stand for the whole ("steps" for "run.steps").
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& known);

}  // namespace trireme

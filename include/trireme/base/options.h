// The options of a command. One table of keys, bound to variables, defines the flags, the keys of
// INI files, the text of --help and the INI text that is written.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/path_text.h"

namespace trireme {

// The conditions that a value must satisfy beyond its type.
struct Limit {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
  bool excludes_least = false;
  bool excludes_most = false;
  bool not_empty = false;            // for texts
  std::vector<std::string> choices;  // for texts; empty: any text
};
Limit at_least(double least);
Limit above(double least);
Limit at_least_and_below(double least, double most);  // also once rounded to fp32
Limit between(double least, double most);             // both included
Limit one_of(std::vector<std::string> choices);
Limit not_empty();

// Turn text into a value and back. On success read_value sets `value` and returns an empty text;
// otherwise it returns what is wrong, in words that continue "NAME VALUE: ". The text that
// write_value returns reads back as the same value. value_placeholder returns what stands for a
// value of the type in --help. A type of another layer has overloads of its own.
std::string read_value(std::string_view text, bool& value, const Limit& limit);
std::string read_value(std::string_view text, int& value, const Limit& limit);
std::string read_value(std::string_view text, std::int64_t& value, const Limit& limit);
std::string read_value(std::string_view text, double& value, const Limit& limit);
std::string read_value(std::string_view text, std::string& value, const Limit& limit);
std::string write_value(bool value);
std::string write_value(int value);
std::string write_value(std::int64_t value);
std::string write_value(double value);
std::string write_value(const std::string& value);
inline std::string value_placeholder(bool) {
  return "true|false";
}
inline std::string value_placeholder(int) {
  return "N";
}
inline std::string value_placeholder(std::int64_t) {
  return "N";
}
inline std::string value_placeholder(double) {
  return "X";
}
inline std::string value_placeholder(const std::string&) {
  return "TEXT";
}

// The text to write of a value; nothing where nobody gave one, so that it follows from elsewhere.
template <class T>
std::optional<std::string> written_value(const T& value) {
  return write_value(value);
}

// Values of keys as texts, by the part of their names after the dot; keys that follow from
// elsewhere are not there. So one layer can hold values of keys that another one declares.
using OptionValues = std::map<std::string, std::string, std::less<>>;

[[noreturn]] void refuse_value(std::string_view section, const OptionValues::value_type& entry,
                               const std::string& problem);
// Returns the value of the key "section.key", or nothing if it follows from elsewhere. Throws
// ConfigError for a text that is no such value. Limits are not checked.
template <class T>
std::optional<T> option_value(const OptionValues& values, std::string_view section,
                              std::string_view key) {
  const auto found = values.find(key);
  if (found == values.end()) return {};
  T value{};
  const std::string problem = read_value(found->second, value, {});
  if (!problem.empty()) refuse_value(section, *found, problem);
  return value;
}

// What it means for a resumed run when a key has another value than before.
enum class OnChange {
  kNotOfRuns,  // not a key of a run
  kOfStart,    // it belongs to one start of a run: the run's records do not keep it
  kNothing,    // no result changes: paths, what is logged, how often a checkpoint is written
  kSums,       // as kRounding where sums depend on the algorithm that carries them
               // (sums_depend_on_algorithm in config.h), else as kNothing
  kRounding,   // results agree up to rounding
  kResults,    // results change
  kOtherRun,   // it becomes another run: the user must agree
  kCompared,   // not the key is compared, but what results from it: grid, device, data contents
};

// What a user is told about a key. `default_text` is "auto" if the value follows from elsewhere.
struct OptionDescription {
  std::string name, unit, help, default_text;
  std::string placeholder;  // stands for the value: "N", "X", "TEXT", "true|false", ...
  std::vector<std::string> choices = {};  // empty: any value
  std::vector<std::string> aliases = {};
  OnChange on_change = OnChange::kNotOfRuns;
  // The key exists only with this value of another one, as in "model.family gpt"; empty: always.
  std::string only_with = {};
  PathForm paths = PathForm::kNone;
};

// What a user is told about a command. --help, the manual page and the shells' completions are made
// from it.
struct CommandDescription {
  struct Positional {
    std::string name, help;
    std::vector<std::string> first_choices;  // for the first such argument; empty: any word
  };
  std::string usage;
  std::optional<Positional> positional;
  std::vector<OptionDescription> options;
};

// The text of --help.
std::string help_text(const CommandDescription& command);

// Returns the text of the file that --config names. Throws ConfigError.
using ConfigReader = std::function<std::string(const std::string& path)>;
std::string read_config_file(const std::string& path);

// All errors are ConfigErrors of one line. It says where the value is ("--run.steps 0", or
// "run.ini:3: run.steps = 0"), what is wrong, and what would be right.
class Options {
 public:
  // help() shows `usage` above the keys: "trireme train [--KEY VALUE]...". With
  // `takes_config_file` the flag --config FILE reads an INI file; flags win over the file.
  explicit Options(std::string usage, bool takes_config_file = false);

  // Declares a key. Its default is the present value of `target`. Parsing writes to `target`, which
  // must outlive this object. A name with a dot, "section.key", is a flag and a key of INI files; a
  // name without a dot is only a flag. `unit` may be empty. Declare the keys of a section together.
  template <class T>
  void add(const std::string& name, T& target, const std::string& unit, const std::string& help,
           const Limit& limit = {}, OnChange on_change = OnChange::kNotOfRuns) {
    add_key({{name,
              unit,
              help,
              write_value(target),
              value_placeholder(target),
              limit.choices,
              {},
              on_change},
             [&target, limit](std::string_view text) { return read_value(text, target, limit); },
             [&target] { return written_value(target); }});
  }
  // A key that may have no value: then the value follows from elsewhere. The text "auto" asks for
  // that explicitly.
  template <class T>
  void add(const std::string& name, std::optional<T>& target, const std::string& unit,
           const std::string& help, const Limit& limit = {},
           OnChange on_change = OnChange::kNotOfRuns) {
    add_key({{name,
              unit,
              help,
              target ? write_value(*target) : "auto",
              value_placeholder(T()),
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
  // The same, with the value kept as text in `values`, as write_value writes it.
  template <class T>
  void add_value(const std::string& name, OptionValues& values, const std::string& unit,
                 const std::string& help, const Limit& limit = {},
                 OnChange on_change = OnChange::kNotOfRuns) {
    const std::string key = name.substr(name.find('.') + 1);
    const auto written = [&values, key] {
      const auto found = values.find(key);
      return found == values.end() ? std::nullopt : std::optional<std::string>(found->second);
    };
    add_key({{name,
              unit,
              help,
              written().value_or("auto"),
              value_placeholder(T()),
              limit.choices,
              {},
              on_change},
             [&values, key, limit](std::string_view text) {
               T value{};
               const bool automatic = text == "auto";
               const std::string problem = automatic ? "" : read_value(text, value, limit);
               if (!problem.empty()) return problem;
               values.erase(key);
               if (!automatic) values.emplace(key, write_value(value));
               return problem;
             },
             written});
  }
  // Declares the keys of one value of a selector, with add_value.
  using DeclareSelected =
      std::function<void(Options& into, const std::string& value, OptionValues& values)>;
  // A key whose value, one of the limit's choices, decides which keys follow it. These are kept as
  // texts in `values`. They are declared now for the present value, and again when parsing begins
  // and finds another value; then `values` loses those of the value before. An Options has one such
  // key at most.
  void add_selector(const std::string& name, std::string& target, OptionValues& values,
                    const std::string& help, const Limit& limit, OnChange on_change,
                    DeclareSelected declare);
  // A second name for the flag of a key: alias("threads", "run.threads").
  void alias(const std::string& name, const std::string& key);
  // The values of these keys name files and folders in this form: parsing expands ~ and $NAME at
  // the start of each (path_text.h).
  void paths(std::initializer_list<std::string_view> names, PathForm form = PathForm::kPath);
  // The values of keys with sections are for a job that is yet to start: variables that only the
  // job has are refused in their paths.
  void for_job() { variables_ = PathVariables::kNotOfJobs; }
  // Accepts arguments that are not flags; without this call they are errors. `first_choices` are
  // words that the first of them may be. They are shown to the user, but not checked here.
  void add_positional(const std::string& name, std::vector<std::string>& target,
                      const std::string& help, std::vector<std::string> first_choices = {});

  // Reads the arguments after the command's name. Of a flag that is given twice, the last counts,
  // so that a script's can be followed by others. Uses `read` to read the file of --config, whose
  // values it applies before the flags. If --help or -h is among the arguments, nothing is read or
  // checked but a flag that decides which keys there are.
  void parse(const std::vector<std::string>& arguments,
             const ConfigReader& read = read_config_file);
  bool help_requested() const { return help_requested_; }
  // The names of the keys that arguments, or the file of --config, gave another value than "auto".
  const std::set<std::string, std::less<>>& given() const { return given_; }
  // The same of arguments alone.
  const std::set<std::string, std::less<>>& given_by_flags() const { return given_by_flags_; }
  const std::string& config_file() const { return config_file_; }  // of --config; empty: none

  // Reads INI text; `origin` names it in errors. A line is "[section]", "key = value", empty, or a
  // comment that starts with # or ;. A value ends at a # after a space. A value in "..." is kept
  // whole; \", \\ and \n are escapes in it.
  void parse_ini(std::string_view text, const std::string& origin);
  // Keys of this section in INI files belong to another command and are ignored.
  void ignore_section(const std::string& section) { ignored_section_ = section; }
  // Returns the values that are not the defaults, as flags: "--model.layers=8".
  std::vector<std::string> to_flags() const;
  // Reads INI text that another version may have written. Takes over those settings whose key is in
  // this table and whose value is allowed. Returns the names of these keys.
  std::set<std::string> take_over(std::string_view text, const std::string& origin);
  // Returns the present value of a key as text; "auto" if it follows from elsewhere.
  std::string value_of(const std::string& name) const;
  // Returns the present values as INI text that parses back to them. Those that follow from
  // elsewhere are left out, unless the key's default is a value: then they are "auto". Keys of one
  // start (OnChange::kOfStart) are left out too.
  std::string to_ini() const;

  // Describes the command, with the keys of every value of a selector unless the arguments chose a
  // value.
  CommandDescription description() const;
  std::string help() const { return help_text(description()); }
  // The keys that there are now, in order of declaration, and their names.
  std::vector<OptionDescription> keys() const;
  std::vector<std::string> names() const;

 private:
  struct Key : OptionDescription {
    std::function<std::string(std::string_view)> read;    // returns what is wrong; empty: nothing
    std::function<std::optional<std::string>()> written;  // empty: follows from elsewhere
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
  struct Selector {
    std::size_t key, first, last;  // its keys are [first, last)
    OptionValues* values;
    DeclareSelected declare;
    std::string value;    // that its keys are of
    bool chosen = false;  // arguments or a file gave its value
  };

  void add_key(Key key);
  std::optional<std::size_t> find(std::string_view flag) const;  // by name or alias
  std::vector<std::string> flag_names() const;
  std::string suggestion(std::string_view unknown, std::string_view prefix,
                         const std::vector<std::string>& known) const;
  std::vector<std::string> complete_switches(const std::vector<std::string>& arguments) const;
  std::vector<Setting> read_flags(const std::vector<std::string>& arguments);
  void apply(const Setting& setting);
  std::optional<Setting> last_flag(const std::vector<std::string>& arguments,
                                   std::size_t key) const;
  std::optional<Setting> first_line(std::string_view text, const std::string& origin,
                                    std::size_t key) const;
  void select(const Setting& setting);
  void declare_selected();
  std::vector<OptionDescription> keys_with(const std::string& value) const;
  std::string other_values_with(std::string_view name) const;
  void read_ini(std::string_view text, const std::string& origin);
  [[noreturn]] void refuse_ini_key(const std::string& name, const std::string& where) const;

  std::string usage_;
  bool takes_config_file_;
  std::string config_file_, ignored_section_;
  bool help_requested_ = false;
  PathVariables variables_ = PathVariables::kAll;
  std::vector<Key> keys_;
  std::set<std::string, std::less<>> given_, given_by_flags_;
  std::vector<Alias> aliases_;
  std::optional<Selector> selector_;
  std::optional<Positional> positional_;
};

// Returns the entry of `known` with the smallest edit distance to `name`, if it is small enough for
// a typing error. The last component of an entry may stand for the entry ("steps" for "run.steps").
// If none is near enough, returns one with the last component of `name` ("train.steps" for
// "run.steps"). What other programs call an entry ("learning_rate") is that entry.
std::optional<std::string> nearest_name(std::string_view name,
                                        const std::vector<std::string>& known);

}  // namespace trireme

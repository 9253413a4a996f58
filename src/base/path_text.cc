#include "trireme/base/path_text.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include "trireme/base/environment.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

bool is_name_character(char c, bool first) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return letter || (!first && c >= '0' && c <= '9');
}

// A variable as it is written in a text: $NAME or ${NAME}.
struct WrittenVariable {
  std::string name;
  std::size_t length = 0;  // of what is written; 0: there is none
};

WrittenVariable variable_at(std::string_view text, std::size_t at) {
  const bool braces = text.substr(at).starts_with("${");
  std::size_t begin = at + (braces ? 2 : 1), end = begin;
  while (end < text.size() && is_name_character(text[end], end == begin)) ++end;
  const bool closed = !braces || (end < text.size() && text[end] == '}');
  if (end == begin || !closed) return {};
  return {std::string(text.substr(begin, end - begin)), end + (braces ? 1 : 0) - at};
}

// Puts backslashes before what has a meaning in a list of weighted paths.
std::string in_form(const std::string& value, PathForm form) {
  if (form != PathForm::kWeightedList) return value;
  std::string result;
  for (const char c : value) {
    if (c == ',' || c == '=' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string home_of(const std::string& user) {
  if (user.empty()) {
    if (const std::string home = environment("HOME"); !home.empty()) return home;
  }
  const passwd* entry = user.empty() ? getpwuid(getuid()) : getpwnam(user.c_str());
  return entry == nullptr ? "" : entry->pw_dir;
}

// What is wrong with a variable; an empty text if nothing is.
std::string problem_with(const std::string& name, PathVariables allowed) {
  const bool of_jobs = name.starts_with("SLURM") || name == "TMPDIR";
  if (of_jobs && allowed == PathVariables::kNotOfJobs) {
    return fmt::format("only the job itself knows its ${}: give a path that is known now", name);
  }
  const char* value = std::getenv(name.c_str());
  if (value != nullptr && *value != '\0') return {};
  return fmt::format(
      "the variable {} is {}: set it, write the path out, or begin with ./ for a name with a $",
      name, value == nullptr ? "not set" : "empty");
}

// Expands one path, written as in a text of this form.
std::string expand_one(std::string& path, PathForm form, PathVariables allowed) {
  // No program takes it for an option; "-" alone is standard input or output.
  if (path.size() > 1 && path[0] == '-') path.insert(0, "./");
  if (path.empty() || (path[0] != '~' && path[0] != '$')) return {};
  std::string result;
  std::size_t at = 0;
  if (path[0] == '~') {
    at = std::min(path.find_first_of("/,="), path.size());
    const std::string user = path.substr(1, at - 1), home = home_of(user);
    if (home.empty() && user.empty()) return "HOME is not set: write the path out";
    if (home.empty()) return {};
    result = in_form(home, form);
  } else if (variable_at(path, 0).length == 0) {
    return "$ must begin $NAME or ${NAME}; ./ before it keeps it as a part of a name";
  }
  while (at < path.size()) {
    const WrittenVariable variable = path[at] == '$' ? variable_at(path, at) : WrittenVariable();
    if (variable.length == 0) {
      result += path[at++];
      continue;
    }
    if (const std::string problem = problem_with(variable.name, allowed); !problem.empty()) {
      return problem;
    }
    result += in_form(environment(variable.name.c_str()), form);
    at += variable.length;
  }
  // What a value holds is not expanded again by who reads the path next.
  const bool again = result.starts_with('~') || result.starts_with('$');
  path = (again ? "./" : "") + result;
  return {};
}

}  // namespace

std::string expand_paths(std::string& text, PathForm form, PathVariables allowed) {
  if (form == PathForm::kNone) return {};
  if (form == PathForm::kPath) return expand_one(text, form, allowed);
  std::string result, path;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const bool ends = at == text.size() || text[at] == ',';
    if (!ends) {
      path += text[at];
      const bool keeps_next = form == PathForm::kWeightedList && text[at] == '\\';
      if (keeps_next && at + 1 < text.size()) path += text[++at];
      continue;
    }
    if (std::string problem = expand_one(path, form, allowed); !problem.empty()) return problem;
    result += path;
    if (at < text.size()) result += ',';
    path.clear();
  }
  text = std::move(result);
  return {};
}

}  // namespace trireme

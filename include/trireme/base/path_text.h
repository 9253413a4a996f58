// Paths as people write them where no shell reads them: in flags ("--output=~/x", which bash hands
// on as it is) and in INI files.
#pragma once

#include <string>

namespace trireme {

// How a text names paths.
enum class PathForm {
  kNone,         // it names none
  kPath,         // all of it is one path
  kList,         // paths between commas
  kWeightedList  // as config/weighted_paths.h has it: a backslash keeps , and = in a path
};

// Which variables may stand in a path. A job has some of its own, whose values on the host that
// writes the job's script are not those that the job will have.
enum class PathVariables { kAll, kNotOfJobs };

// Expands each path that begins with ~, ~USER, $NAME or ${NAME} as a shell does; in such a path all
// further $NAME and ${NAME} are expanded too. ~USER without such a user stays as it is. Any other
// path stays as it is, so ./ before a name keeps a ~ or $ in it, but a name that begins with a dash
// gets ./ before it, so that no program takes it for an option. Returns what is wrong, in words
// that continue "NAME VALUE: ": a variable that is not set or empty, or that `allowed` excludes.
std::string expand_paths(std::string& text, PathForm form, PathVariables allowed);

}  // namespace trireme

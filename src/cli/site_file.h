// Finds the site file and the job templates.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/job/job_script.h"

namespace trireme::cli {

// Returns share/trireme/jobs next to the installed program, or jobs/ in the source tree that the
// program was built in; nullopt if neither exists.
std::optional<std::filesystem::path> find_jobs_folder();

// Returns the contents of the site file: the given one, or else the one that TRIREME_SITE in the
// environment names, or else site.ini in the jobs folder. Throws ConfigError for a file that cannot
// be read or parsed.
Site read_site(const std::string& given);

}  // namespace trireme::cli

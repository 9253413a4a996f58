// Where the site file and the job templates lie.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trireme/train/job_script.h"

namespace trireme::cli {

// share/trireme/jobs beside the installed program, or jobs/ in the source tree that it was built
// in.
std::optional<std::filesystem::path> find_jobs_folder();

// What the site file says: the one that was given, else that of the environment's TRIREME_SITE,
// else site.ini in the jobs folder. Throws ConfigError for a file that cannot be read or
// understood.
Site read_site(const std::string& given);

}  // namespace trireme::cli

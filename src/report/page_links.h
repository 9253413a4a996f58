// Links from a page of several runs to the pages of each.
#pragma once

#include <string>

namespace trireme {

// Returns the way from a folder to the report of the run in another one, as an address.
std::string link_to_report(const std::string& run_folder, const std::string& page_folder);

}  // namespace trireme

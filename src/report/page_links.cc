#include "report/page_links.h"

#include <filesystem>

#include <fmt/format.h>

namespace trireme {

std::string link_to_report(const std::string& run_folder, const std::string& page_folder) {
  std::error_code none;  // then it is the path from here
  const std::filesystem::path report = std::filesystem::path(run_folder) / "report.html";
  const auto way = std::filesystem::relative(report, page_folder.empty() ? "." : page_folder, none);
  std::string link;
  for (const char c : (none || way.empty() ? report : way).string()) {
    // What has a meaning in an address.
    link += c == '%' || c == '#' || c == '?' || c == ' ' || c == ':'
                ? fmt::format("%{:02X}", static_cast<unsigned char>(c))
                : std::string(1, c);
  }
  return link;
}

}  // namespace trireme

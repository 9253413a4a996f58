#include "trireme/report/run_report.h"

#include <exception>

#include <fmt/format.h>

#include "trireme/base/log.h"
#include "trireme/io/whole_file.h"
#include "trireme/report/run_page.h"

namespace trireme {

void RunReport::write(const std::optional<std::string>& ended) noexcept {
  try {
    try {
      if (history_) {
        history_->update();
      } else {
        history_.emplace(folder_);
      }
      write_whole_file(folder_ + "/report.html", page_of_run(*history_, ended));
    } catch (const std::exception& error) {
      if (!failed_) report_line(fmt::format("no report: {}; the run goes on", error.what()));
      failed_ = true;
    }
  } catch (...) {
    // There was no memory for the line either.
  }
}

}  // namespace trireme

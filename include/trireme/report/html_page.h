// The frame that our pages share, as in a run's report.html: one page that needs nothing beside
// itself: no script, no font, no image from elsewhere. It is XML as well as HTML, follows the
// reader's light or dark mode, and prints.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme {

using Facts = std::vector<std::pair<std::string, std::string>>;

// Around its body. A page that `goes_on` loads itself anew every half minute.
std::string html_page(const std::string& title, bool goes_on, const std::string& body);
// A plot of svg_plot.h as a file of its own: with the colours and fonts of the page.
std::string standalone_svg(const std::string& plot);
std::string html_facts(const Facts& facts);
std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows);

}  // namespace trireme

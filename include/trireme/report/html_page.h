// The frame that our pages share, such as a run's report.html. A page is one self-contained file:
// it needs no script, font or image from elsewhere. It is valid XML as well as HTML, follows the
// reader's light or dark mode, and can be printed.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace trireme {

using Facts = std::vector<std::pair<std::string, std::string>>;

// Returns the page around `body`. With `goes_on` the page reloads itself every half minute.
std::string html_page(const std::string& title, bool goes_on, const std::string& body);
// Turns a plot of svg_plot.h into a file of its own, with the colours and fonts of the page.
std::string standalone_svg(const std::string& plot);
std::string html_facts(const Facts& facts);
// `links`: where the first cell of each row leads; empty, or an empty text: nowhere.
std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows,
                       const std::vector<std::string>& links = {});

}  // namespace trireme

#include "trireme/report/html_page.h"

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/base/wall_clock.h"
#include "trireme/report/svg_plot.h"

namespace trireme {
namespace {

constexpr std::size_t kLongCell = 24;  // characters; a longer cell is text, not a number

struct Colour {
  const char* name;
  const char* light;
  const char* dark;
};

// The colours in light and in dark mode. c0, c1, ... are the colours of lines and areas by number:
// Okabe and Ito's, which colour-blind readers can tell apart, made lighter for dark mode.
constexpr Colour kPalette[] = {
    {"paper", "#fff", "#16181c"},   {"ink", "#1a1a1a", "#e8eaed"}, {"faint", "#5f6368", "#a5abb3"},
    {"rule", "#dadce0", "#3a3f47"}, {"c0", "#0072b2", "#5bb4f0"},  {"c1", "#c8500a", "#ff9a5c"},
    {"c2", "#00805c", "#45d3a4"},   {"c3", "#b0568f", "#f0a5d0"},  {"c4", "#b07d00", "#ffcc55"},
    {"c5", "#2b8fc7", "#9bd7ff"},   {"on", "#fff", "#111"}};

constexpr const char* kPlotStyle = R"(
svg { width: 100%; height: auto; display: block; }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .heading { font-weight: 600; font-size: 14px; } svg .right { text-anchor: end; }
svg .middle, svg .inside { text-anchor: middle; } svg .inside { fill: var(--on); pointer-events: none; }
svg path { fill: none; } svg .grid { stroke: var(--rule); } svg .axis { stroke: var(--faint); }
svg .dashed { stroke-dasharray: 6 4; } svg .event { stroke-dasharray: 2 3; stroke-width: 1.5; }
svg .box { fill: var(--paper); stroke: var(--faint); } svg .host { fill: none; stroke: var(--rule); }
svg .hit { fill: transparent; } svg .hit:hover { fill: var(--ink); }
)";

constexpr const char* kPageStyle = R"(
@page { margin: 15mm; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 66rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--paper); color: var(--ink); }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin-top: 2rem; }
p.state, p.remark, footer { color: var(--faint); }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: .82rem; font-variant-numeric: tabular-nums; }
th, td { text-align: right; white-space: nowrap; padding: .25rem .4rem; border-bottom: 1px solid var(--rule); }
th { color: var(--faint); font-weight: 600; vertical-align: bottom; white-space: normal; }
th:first-child, td:first-child, td.text { text-align: left; }
td.text { white-space: normal; overflow-wrap: anywhere; }
.wide { overflow-x: auto; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
@media (max-width: 32rem) { .plots { grid-template-columns: 1fr; } }
figure { margin: 1rem 0; } figure.shares { max-width: 42rem; }
)";

// Comes last, so that it overrides the rules before it.
constexpr const char* kPrint =
    R"(@media print { :root { --paper: #fff; --ink: #000; --faint: #444; --rule: #bbb; --c0: #0072b2;
  --c1: #c8500a; --c2: #00805c; --c3: #b0568f; --c4: #b07d00; --c5: #2b8fc7; --on: #fff;
  color-scheme: light; }
  .wide { overflow: visible; } table { font-size: 7pt; }
  th, td { padding: .15rem .2rem; }
  .plots { grid-template-columns: 1fr 1fr; }
  body { max-width: none; margin: 0; font-size: 10pt; }
  figure, table, tr, h2 { break-inside: avoid; } h2 { break-after: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
)";

std::string palette() {
  std::string light, dark;
  for (const Colour& colour : kPalette) {
    light += fmt::format("--{}: {}; ", colour.name, colour.light);
    dark += fmt::format("--{}: {}; ", colour.name, colour.dark);
  }
  return fmt::format(
      ":root {{ color-scheme: light dark; {}}}\n"
      "@media (prefers-color-scheme: dark) {{ :root {{ {}}} }}",
      light, dark);
}

std::string colour_rules() {
  std::string rules;
  for (int i = 0; i < 6; ++i) {
    rules += fmt::format(
        "svg .s{0} {{ stroke: var(--c{0}); stroke-width: 2; }} svg .f{0} {{ fill: var(--c{0}); "
        "}}\n",
        i);
  }
  return rules + "svg .thin { stroke-width: 1; }\n";
}

}  // namespace

std::string html_page(const std::string& title, bool goes_on, const std::string& body) {
  return fmt::format(
      "<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
      "<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n{}"
      "<title>{}</title>\n<style>{}{}{}{}{}</style>\n</head>\n<body>\n{}<footer><p>Written by "
      "trireme on "
      "{}.</p></footer>\n</body>\n</html>\n",
      goes_on ? "<meta http-equiv=\"refresh\" content=\"30\"/>\n" : "", escape_html(title),
      palette(), kPlotStyle, kPageStyle, colour_rules(), kPrint, body,
      utc_text(static_cast<std::int64_t>(unix_seconds())) + " UTC");
}

// Writes out the light colours, since few programs other than browsers know CSS variables.
std::string standalone_svg(const std::string& plot) {
  std::string style = kPlotStyle + colour_rules() + "svg { background: var(--paper); }";
  for (const Colour& colour : kPalette) {
    const std::string variable = fmt::format("var(--{})", colour.name);
    for (std::size_t at = 0; (at = style.find(variable, at)) != std::string::npos;) {
      style.replace(at, variable.size(), colour.light);
    }
  }
  const std::size_t end_of_opening = plot.find('>') + 1;
  return fmt::format("{}\n<style>{}</style>{}", plot.substr(0, end_of_opening), style,
                     plot.substr(end_of_opening));
}

std::string html_facts(const Facts& facts) {
  std::string html = "<dl>\n";
  for (const auto& [name, value] : facts) {
    html += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape_html(name), escape_html(value));
  }
  return html + "</dl>\n";
}

std::string html_table(const std::vector<std::string>& head,
                       const std::vector<std::vector<std::string>>& rows,
                       const std::vector<std::string>& links) {
  std::string html = "<div class=\"wide\"><table>\n<thead><tr>";
  for (const std::string& cell : head) html += fmt::format("<th>{}</th>", escape_html(cell));
  html += "</tr></thead>\n<tbody>\n";
  for (std::size_t r = 0; r < rows.size(); ++r) {
    html += "<tr>";
    for (std::size_t i = 0; i < rows[r].size(); ++i) {
      const std::string& cell = rows[r][i];
      const char* css = cell.size() > kLongCell ? " class=\"text\"" : "";
      const bool linked = i == 0 && r < links.size() && !links[r].empty();
      html += linked ? fmt::format("<td{}><a href=\"{}\">{}</a></td>", css, escape_html(links[r]),
                                   escape_html(cell))
                     : fmt::format("<td{}>{}</td>", css, escape_html(cell));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace trireme

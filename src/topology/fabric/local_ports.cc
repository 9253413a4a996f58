#include "trireme/topology/local_ports.h"

#include <charconv>
#include <filesystem>

#include "trireme/base/kernel_files.h"

#include "topology/fabric/infiniband_rate.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostPorts = 1024;

// What follows the colon in "4: ACTIVE".
std::string state_in(const std::string& line) {
  const std::size_t colon = line.find(": ");
  return colon == std::string::npos ? line : line.substr(colon + 2);
}

// The number that a line begins with: "0x12", "12".
int number_in(std::string_view line, int otherwise) {
  const int base = line.starts_with("0x") ? 16 : 10;
  if (base == 16) line.remove_prefix(2);
  int number = otherwise;
  std::from_chars(line.data(), line.data() + line.size(), number, base);
  return number;
}

// "b859:9f03:00a1:b2c4".
std::uint64_t guid_in(std::string line) {
  std::erase(line, ':');
  std::uint64_t guid = 0;
  std::from_chars(line.data(), line.data() + line.size(), guid, 16);
  return guid;
}

LocalPort read_port(const fs::path& adapter, const std::string& number) {
  const fs::path port = adapter / "ports" / number;
  LocalPort result;
  result.adapter = adapter.filename().string();
  result.number = number_in(number, 0);
  result.guid = guid_in(first_line_of(adapter / "node_guid"));
  result.state = state_in(first_line_of(port / "state"));
  result.physical_state = state_in(first_line_of(port / "phys_state"));
  result.link_layer = first_line_of(port / "link_layer");
  result.rate = first_line_of(port / "rate");
  result.bytes_per_second = bytes_per_second_of_port(result.rate);
  result.lid = number_in(first_line_of(port / "lid"), 0);
  result.manager_lid = number_in(first_line_of(port / "sm_lid"), 0);
  result.subnet =
      first_line_of(port / "gids" / "0").substr(0, std::string("fe80:0000:0000:0000").size());
  result.numa_node = number_in(first_line_of(adapter / "device" / "numa_node"), -1);
  result.cpus = first_line_of(adapter / "device" / "local_cpus");
  return result;
}

}  // namespace

double bytes_per_second_of_port(std::string_view rate) {
  // The words in brackets know the line code, which the number does not.
  const std::size_t open = rate.find('('), close = rate.find(')');
  if (open != std::string_view::npos && close != std::string_view::npos && open < close) {
    std::string words(rate.substr(open + 1, close - open - 1));
    std::erase(words, ' ');
    if (const std::size_t by = words.find('X'); by != std::string::npos) words[by] = 'x';
    if (const double known = infiniband_bytes_per_second(words); known > 0.0) return known;
  }
  double gigabits = 0.0;
  const auto result = std::from_chars(rate.data(), rate.data() + rate.size(), gigabits);
  const std::string_view unit = rate.substr(static_cast<std::size_t>(result.ptr - rate.data()));
  const bool sane = result.ec == std::errc() && gigabits > 0.0 && gigabits < 1e6;
  return sane && unit.starts_with(" Gb/sec") ? gigabits * 1e9 / 8 : 0.0;
}

std::vector<LocalPort> read_local_ports(const std::string& sysfs) {
  std::vector<LocalPort> ports;
  const fs::path root = fs::path(sysfs) / "class" / "infiniband";
  for (const std::string& adapter : kernel_names(root)) {
    for (const std::string& number : kernel_names(root / adapter / "ports")) {
      if (ports.size() < kMostPorts) ports.push_back(read_port(root / adapter, number));
    }
  }
  return ports;
}

}  // namespace trireme

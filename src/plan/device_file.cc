#include "device_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"

namespace trireme::plan {
namespace {

constexpr std::array kEvidence = {Evidence::kMeasured, Evidence::kPublished, Evidence::kDataSheet};
constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI32,
                               DType::kI64, DType::kU16,  DType::kU8,  DType::kE4M3};
constexpr std::array kProductTypes = {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3};

enum class Needed { kAlways, kOnGpus, kNever };

// A figure of a file, and which values make sense.
struct Figure {
  std::string_view key;
  std::function<double&(DeviceDescription&)> of;
  double least, most;
  std::string_view unit;
  Needed needed;
  bool none = false;  // 0 is a value too: the device does not have it
};

const std::vector<Figure>& figures() {
  using D = DeviceDescription;
  constexpr double kRate = 1e16, kFlops = 1e19;
  static const std::vector<Figure> table = {
      {"memory", [](D& d) -> double& { return d.memory; }, 1e7, kRate, "bytes", Needed::kAlways},
      {"memory_rate", [](D& d) -> double& { return d.memory_rate; }, 1e7, kRate, "bytes/s",
       Needed::kAlways},
      {"tf32_peak", [](D& d) -> double& { return d.tf32_peak; }, 1e7, kFlops, "FLOP/s",
       Needed::kNever, true},
      {"vector_peak", [](D& d) -> double& { return d.vector_peak; }, 1e7, kFlops, "FLOP/s",
       Needed::kAlways},
      {"host_rate", [](D& d) -> double& { return d.host_rate; }, 1e5, kRate, "bytes/s",
       Needed::kOnGpus, true},
      {"launch", [](D& d) -> double& { return d.launch; }, 0, 0.1, "seconds", Needed::kNever},
      {"beside_communication", [](D& d) -> double& { return d.beside_communication; }, 0.01, 1,
       "of the speed alone", Needed::kNever},
      {"beside_computation", [](D& d) -> double& { return d.beside_computation; }, 0.001, 1,
       "of the speed alone", Needed::kNever},
      {"interval", [](D& d) -> double& { return d.interval; }, 0, 10, "of a step", Needed::kNever},
  };
  return table;
}

const std::vector<Figure>& constants() {
  using D = DeviceDescription;
  static const std::vector<Figure> table = {
      {"product", [](D& d) -> double& { return d.constants.product; }, 0.01, 1, "of the peak",
       Needed::kNever},
      {"memory", [](D& d) -> double& { return d.constants.memory; }, 0.01, 1, "of memory_rate",
       Needed::kNever},
      {"attention", [](D& d) -> double& { return d.constants.attention; }, 0.01, 1, "of the peak",
       Needed::kNever},
      {"start", [](D& d) -> double& { return d.constants.start; }, 0, 0.1, "seconds",
       Needed::kNever},
      {"pace", [](D& d) -> double& { return d.constants.pace; }, 0.1, 100, "times as long",
       Needed::kNever},
  };
  return table;
}

// An object of a file, and how its parts are called in errors.
class Part {
 public:
  Part(const Json& object, std::string origin, std::string prefix = "")
      : object_(object), origin_(std::move(origin)), prefix_(std::move(prefix)) {
    if (!object.is_object()) refuse("", "is no object of keys and values");
  }

  [[noreturn]] void refuse(std::string_view key, const std::string& why) const {
    const std::string name = prefix_ + std::string(key);
    throw ConfigError(
        fmt::format("{}: {}{}", origin_, name.empty() ? "the description " : name + " ", why));
  }

  void refuse_unknown_keys(const std::vector<std::string>& known) const {
    for (const auto& [key, value] : object_.members()) {
      if (std::ranges::count(known, key) > 0) continue;
      const std::optional<std::string> nearest = nearest_name(key, known);
      refuse(printable(key), nearest
                                 ? fmt::format("is unknown; did you mean {}?", *nearest)
                                 : fmt::format("is unknown; there are {}", fmt::join(known, ", ")));
    }
  }

  const Json* find(std::string_view key) const { return object_.find(key); }
  const Json& member(std::string_view key, std::string_view what) const {
    const Json* const found = object_.find(key);
    if (found == nullptr) refuse(key, fmt::format("is missing: give {}", what));
    return *found;
  }

  std::string text(std::string_view key, std::string_view what) const {
    const Json& value = member(key, what);
    if (!value.is_text() || value.text().empty()) refuse(key, fmt::format("is not {}", what));
    if (printable(value.text()) != value.text()) {
      refuse(key, fmt::format("is {}: expected characters that can be printed, in one line",
                              shown(value.text())));
    }
    return value.text();
  }

  double number(std::string_view key, double least, double most, std::string_view unit,
                bool none = false) const {
    const Json& value = member(key, unit);
    const std::string range =
        fmt::format("expected {:g} to {:g} {}{}", least, most, unit, none ? ", or 0 for none" : "");
    if (!value.is_number()) refuse(key, "is no number: " + range);
    const double x = value.number();
    if (!((x >= least && x <= most) || (none && x == 0))) {
      refuse(key, fmt::format("is {:g}: {}", x, range));
    }
    return x;
  }

  std::int64_t whole(std::string_view key, std::int64_t least, std::int64_t most,
                     std::string_view unit) const {
    const double x = number(key, static_cast<double>(least), static_cast<double>(most), unit);
    if (x != std::floor(x)) refuse(key, fmt::format("is {:g}: expected a whole number", x));
    return static_cast<std::int64_t>(x);
  }

  void read(const std::vector<Figure>& table, DeviceDescription& device) const {
    for (const Figure& one : table) {
      const bool needed =
          one.needed == Needed::kAlways || (one.needed == Needed::kOnGpus && device.gpu);
      if (!needed && find(one.key) == nullptr) continue;
      one.of(device) = number(one.key, one.least, one.most, one.unit, one.none);
    }
  }

  Part part(std::string_view key, std::string_view what) const {
    return {member(key, what), origin_, prefix_ + std::string(key) + "."};
  }
  const Json::Object& members() const { return object_.members(); }

 private:
  const Json& object_;
  std::string origin_, prefix_;
};

std::optional<DType> type_named(std::string_view name) {
  for (const DType type : kTypes) {
    if (name_of(type) == name) return type;
  }
  return {};
}

Evidence read_evidence(const Part& file) {
  const std::string text = file.text("evidence", "measured, published or data sheet");
  for (const Evidence one : kEvidence) {
    if (text == name_of(one)) return one;
  }
  file.refuse("evidence",
              fmt::format("is {}: expected measured, published or data sheet", printable(text)));
}

void read_peaks(const Part& file, DeviceDescription& device) {
  const Part peaks = file.part("peak", "FLOP/s of products by type: {\"fp32\": 2e11}");
  std::vector<std::string> known;
  for (const DType type : kProductTypes) known.emplace_back(name_of(type));
  peaks.refuse_unknown_keys(known);
  for (const DType type : kProductTypes) {
    if (peaks.find(name_of(type)) == nullptr) continue;
    device.peak[type] = peaks.number(name_of(type), 1e7, 1e19, "FLOP/s");
  }
  if (device.peak.empty()) peaks.refuse("fp32", "is missing: no type has a peak");
}

std::vector<std::string> known_keys() {
  std::vector<std::string> known = {"name",     "title",           "kind",      "threads",
                                    "ranks",    "multiprocessors", "peak",      "source",
                                    "evidence", "sources",         "constants", "operations"};
  for (const Figure& one : figures()) known.emplace_back(one.key);
  return known;
}

void read_sources(const Part& file, DeviceDescription& device) {
  if (file.find("sources") == nullptr) return;
  const Part sources = file.part("sources", "where figures are from, by key");
  std::vector<std::string> known = known_keys();
  for (const Figure& one : constants()) known.push_back(fmt::format("constants.{}", one.key));
  sources.refuse_unknown_keys(known);
  for (const auto& [key, value] : sources.members()) {
    device.sources[key] = sources.text(key, "a text");
  }
}

MeasuredOperation read_operation(const Part& row) {
  row.refuse_unknown_keys({"operation", "dtype", "sizes", "flops", "bytes", "seconds"});
  MeasuredOperation one;
  one.operation = row.text("operation", "the name of an operation");
  const std::string type = row.text("dtype", "a type of elements");
  const std::optional<DType> found = type_named(type);
  if (!found) row.refuse("dtype", fmt::format("is {}: expected a type as fp32", printable(type)));
  one.dtype = *found;
  const Json& sizes = row.member("sizes", "up to four sizes");
  if (!sizes.is_array() || sizes.items().size() > one.sizes.size()) {
    row.refuse("sizes", "is no list of at most four sizes");
  }
  for (std::size_t i = 0; i < sizes.items().size(); ++i) {
    const Json& size = sizes.at(i);
    if (!size.is_integer() || size.number() < 0 || size.number() > 1e18) {
      row.refuse("sizes", "holds what is no size: expected whole numbers from 0 to 1e18");
    }
    one.sizes[i] = size.integer();
  }
  one.flops = row.number("flops", 0, 1e24, "operations");
  one.bytes = row.number("bytes", 0, 1e18, "bytes");
  one.seconds = row.number("seconds", 1e-12, 1e6, "seconds");
  return one;
}

void read_operations(const Part& file, const std::string& origin, DeviceDescription& device) {
  const Json* const list = file.find("operations");
  if (list == nullptr) return;
  if (!list->is_array()) file.refuse("operations", "is no list of measured operations");
  for (std::size_t i = 0; i < list->items().size(); ++i) {
    device.operations.push_back(
        read_operation({list->at(i), origin, fmt::format("operations[{}].", i)}));
  }
}

Json json_of(const MeasuredOperation& one) {
  Json sizes = Json::array();
  for (const std::int64_t size : one.sizes) sizes.push_back(size);
  return Json::object({{"operation", one.operation},
                       {"dtype", name_of(one.dtype)},
                       {"sizes", std::move(sizes)},
                       {"flops", one.flops},
                       {"bytes", one.bytes},
                       {"seconds", one.seconds}});
}

}  // namespace

std::string_view name_of(Evidence evidence) {
  switch (evidence) {
    case Evidence::kMeasured:
      return "measured";
    case Evidence::kPublished:
      return "published";
    case Evidence::kDataSheet:
      break;
  }
  return "data sheet";
}

Json read_json(std::string_view text, const std::string& origin) {
  try {
    return Json::parse_unique(text);
  } catch (const JsonError& error) {
    throw ConfigError(fmt::format("{}: {}", origin, error.what()));
  }
}

DeviceDescription read_device(const Json& object, const std::string& origin) {
  const Part file(object, origin);
  file.refuse_unknown_keys(known_keys());
  DeviceDescription device;
  device.name = file.text("name", "a name as h100");
  device.title = file.find("title") != nullptr ? file.text("title", "a text") : device.name;
  const std::string kind = file.text("kind", "gpu or cpu");
  if (kind != "gpu" && kind != "cpu") {
    file.refuse("kind", fmt::format("is {}: expected gpu or cpu", printable(kind)));
  }
  device.gpu = kind == "gpu";
  device.source = file.text("source", "a text: where the figures are from");
  device.evidence = read_evidence(file);
  if (device.gpu) {
    device.multiprocessors =
        static_cast<int>(file.whole("multiprocessors", 1, 100000, "multiprocessors"));
  } else {
    device.threads = static_cast<int>(file.whole("threads", 1, 1024, "threads of a rank"));
    if (file.find("ranks") != nullptr) {
      device.ranks = static_cast<int>(file.whole("ranks", 1, 1024, "ranks of a node"));
    }
  }
  if (!device.gpu && file.find("multiprocessors") != nullptr) {
    file.refuse("multiprocessors", "is of GPUs: leave it out");
  }
  for (const std::string_view key : {"threads", "ranks"}) {
    if (device.gpu && file.find(key) != nullptr) {
      file.refuse(key, "is of processors: leave it out");
    }
  }
  file.read(figures(), device);
  read_peaks(file, device);
  if (file.find("constants") != nullptr) {
    const Part fitted = file.part("constants", "fitted constants");
    std::vector<std::string> known;
    for (const Figure& one : constants()) known.emplace_back(one.key);
    fitted.refuse_unknown_keys(known);
    fitted.read(constants(), device);
  }
  read_sources(file, device);
  read_operations(file, origin, device);
  return device;
}

DeviceDescription read_device(std::string_view text, const std::string& origin) {
  return read_device(read_json(text, origin), origin);
}

std::string write_device(const DeviceDescription& device) {
  DeviceDescription copy = device;  // Figure::of takes no constant one
  Json file = Json::object({{"name", device.name},
                            {"title", device.title},
                            {"kind", device.gpu ? "gpu" : "cpu"},
                            {"source", device.source},
                            {"evidence", name_of(device.evidence)}});
  if (device.gpu) {
    file["multiprocessors"] = device.multiprocessors;
  } else {
    file["threads"] = device.threads;
    file["ranks"] = device.ranks;
  }
  for (const auto& [type, peak] : device.peak) file["peak"][name_of(type)] = peak;
  for (const Figure& one : figures()) {
    if (one.none && one.of(copy) == 0) continue;
    file[one.key] = one.of(copy);
  }
  for (const Figure& one : constants()) file["constants"][one.key] = one.of(copy);
  for (const auto& [key, source] : device.sources) file["sources"][key] = source;
  std::string text = file.dump(1);
  if (device.operations.empty()) return text + "\n";
  // One operation a line.
  text.resize(text.rfind('\n'));
  text += ",\n \"operations\": [";
  for (const MeasuredOperation& one : device.operations) {
    text +=
        fmt::format("{}\n  {}", &one == &device.operations.front() ? "" : ",", json_of(one).dump());
  }
  return text + "\n ]\n}\n";
}

}  // namespace trireme::plan

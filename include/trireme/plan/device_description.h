// What a device computes in a second, and how long operations take on it.
//
// A description is data: figures of the device, of data sheets or measured, and few constants that
// are fitted. src/plan/README.md tells the model and the format of a description's file.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/tensor/step_program.h"

namespace trireme::plan {

// How well it is known how long a device takes.
enum class Evidence {
  kMeasured,   // here, by `trireme bench ops --describe`
  kPublished,  // fitted to published runs
  kDataSheet,  // nobody has compared it with a run: intervals are wide
};

// A measured time of an operation: of a product by its sizes, of others by their bytes.
struct MeasuredOperation {
  std::string operation;  // as in a step program: "matmul", "layer_norm"
  DType dtype = DType::kF32;
  std::array<std::int64_t, 4> sizes{};  // as ProgramEntry::sizes
  double flops = 0.0, bytes = 0.0;      // as in ProgramEntry
  double seconds = 0.0;

  bool operator==(const MeasuredOperation&) const = default;
};

struct DeviceDescription {
  std::string name;    // "h100": what users give
  std::string title;   // "NVIDIA H100 SXM5 80 GB"
  bool gpu = true;     // false: the processor of a node, of so many `threads`
  int threads = 0;     // of a rank
  int ranks = 1;       // of a processor: that shared the node when it was measured
  std::string source;  // where the figures are from
  Evidence evidence = Evidence::kDataSheet;
  std::map<std::string, std::string> sources = {};  // of single figures, by their keys in a file
  double memory = 0.0;                              // bytes
  double memory_rate = 0.0;                         // bytes per second
  std::map<DType, double> peak;  // FLOP/s of products, by the type of their operands
  double tf32_peak = 0.0;        // the same of fp32 rounded to TF32; 0: it has no TF32
  double vector_peak = 0.0;      // FLOP/s in fp32 of what are no products
  int multiprocessors = 0;
  double host_rate = 0.0;  // bytes per second between the host and the GPU

  // Fitted, at most four for each device.
  struct Constants {
    double product = 0.8;    // the share of the peak that large products reach under load
    double memory = 0.85;    // the share of memory_rate that a copy reaches
    double attention = 0.5;  // the share of the peak that attention to many keys reaches
    double start = 4e-6;     // seconds that an operation takes beside its work
    // The program's, and not the device's: how many times longer the operations of a step take than
    // they take alone.
    double pace = 1.0;

    bool operator==(const Constants&) const = default;
  } constants;
  double launch = 2.5e-6;  // seconds of the host to queue an operation
  // Speeds while both are under way, parts of those alone (ReplayCosts).
  double beside_communication = 1.0, beside_computation = 1.0;
  // The relative half-width of the interval that holds nine of ten times of a step.
  double interval = 0.5;
  std::vector<MeasuredOperation> operations;  // where they are measured, they count

  bool operator==(const DeviceDescription&) const = default;
};

// Returns the device as it is with cuda.tf32: products of fp32 at the peak of TF32, if it has that.
DeviceDescription with_tf32(DeviceDescription device);

// Costs operations on a device.
class DeviceCosts {
 public:
  explicit DeviceCosts(DeviceDescription device);
  DeviceCosts(DeviceCosts&&) noexcept;
  DeviceCosts& operator=(DeviceCosts&&) noexcept;
  ~DeviceCosts();

  const DeviceDescription& device() const { return device_; }
  // Returns the seconds of an operation or copy, its start included; `name` is what the program
  // calls it. Where operations like it were measured (the same name and type) they decide: a
  // measured one takes its measured time. Else it is never less than what the device's roofline
  // allows. Allocates nothing. Throws ConfigError for a product of a type that the device has no
  // peak for.
  double seconds(const ProgramEntry& entry, std::string_view name) const;

 private:
  class Measured;

  double modelled(const ProgramEntry& entry, std::string_view name) const;

  DeviceDescription device_;
  std::unique_ptr<const Measured> measured_;
};

// The devices that the program knows, in the order of their names: those of src/plan/devices.json.
const std::vector<DeviceDescription>& known_devices();
// Returns one by its name. Throws ConfigError that names the nearest one, and all.
const DeviceDescription& known_device(std::string_view name);

// Reads the text of a description's file: JSON, in bytes, seconds, bytes/s and FLOP/s. `origin`
// names it in errors. Throws ConfigError in one line, with the origin and the key, where a figure
// is missing or makes no sense.
DeviceDescription read_device(std::string_view text, const std::string& origin);
// Returns the text of a file that reads back to an equal description.
std::string write_device(const DeviceDescription& device);
// "measured", "published" or "data sheet".
std::string_view name_of(Evidence evidence);

}  // namespace trireme::plan

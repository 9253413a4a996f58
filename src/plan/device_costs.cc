#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/plan/device_description.h"

#include "known_devices.h"
#include "measured_operations.h"
#include "product_time.h"

namespace trireme::plan {
namespace {

enum class Work {
  kProduct,
  kConvolution,
  kConvolutionBackwardInput,
  kConvolutionBackwardWeight,
  kAttention,
  kAttentionBackward,
  kOther,
};

Work work_of(std::string_view name) {
  if (name == "matmul") return Work::kProduct;
  if (name == "attention") return Work::kAttention;
  if (name == "attention_backward") return Work::kAttentionBackward;
  if (name == "convolution") return Work::kConvolution;
  if (name == "convolution_backward_input") return Work::kConvolutionBackwardInput;
  if (name == "convolution_backward_weight") return Work::kConvolutionBackwardWeight;
  return Work::kOther;
}

// What attention takes on a GPU beside its products counts like so many more keys of each query:
// fitted to FlashAttention-3 on an H100, heads of 128 channels, 512 to 16,384 keys (430 to 621
// TFLOP/s: pytorch/benchmark, pull request 2391).
constexpr double kMoreKeys = 205;
// Heads with fewer channels than this do as many exponentials for fewer products.
constexpr double kFullHead = 128;
// The backward's share of the forward's rate: 223 and 314 TFLOP/s on an H200 (perf/RESULTS.md).
constexpr double kBackward = 0.71;

// The product that a convolution is. `sizes` are pixels, output channels, taps x input channels of
// a group, groups.
Product product_of(Work work, const std::array<std::int64_t, 4>& sizes) {
  const auto size = [&](std::size_t i) {
    return static_cast<double>(std::max<std::int64_t>(1, sizes[i]));
  };
  if (work == Work::kProduct) return {size(0), size(1), size(2), size(3)};
  const double pixels = size(0), groups = size(3), out = size(1) / groups, in = size(2);
  if (work == Work::kConvolutionBackwardInput) return {pixels, in, out, groups};
  if (work == Work::kConvolutionBackwardWeight) return {out, in, pixels, groups};
  return {pixels, out, in, groups};
}

// On a CPU kernels are measured.
double share_of(const DeviceDescription& device, std::string_view name) {
  return device.gpu ? kernel_share(name) : 1.0;
}

double peak_of(const DeviceDescription& device, DType dtype) {
  const auto found = device.peak.find(dtype);
  if (found != device.peak.end()) return found->second;
  std::string types;
  for (const auto& [type, peak] : device.peak) {
    types += fmt::format("{}{}", types.empty() ? "" : ", ", name_of(type));
  }
  throw ConfigError(fmt::format("device {} has no peak for products of {}; it has {}", device.name,
                                name_of(dtype), types));
}

// The seconds of the arithmetic of a product or convolution.
double product_work(const DeviceDescription& device, Work work, const ProgramEntry& entry,
                    std::string_view name) {
  const double rate =
      peak_of(device, entry.dtype) * device.constants.product * share_of(device, name);
  const double least = entry.flops / rate;
  if (!device.gpu) return least;
  return std::max(least,
                  product_seconds(product_of(work, entry.sizes), rate, device.multiprocessors));
}

double attention_work(const DeviceDescription& device, Work work, const ProgramEntry& entry) {
  const double peak = peak_of(device, entry.dtype) * device.constants.attention;
  const bool backward = work == Work::kAttentionBackward;
  const double rate = peak * (backward ? kBackward : 1.0);
  if (!device.gpu) return entry.flops / rate;
  const auto size = [&](std::size_t i) {
    return static_cast<double>(std::max<std::int64_t>(1, entry.sizes[i]));
  };
  // The keys that a query reads on average: a mask leaves some out.
  const double of_key = (backward ? 10.0 : 4.0) * size(0) * size(1) * size(3);
  const double heads = std::sqrt(std::min(1.0, size(3) / kFullHead));
  return (entry.flops + of_key * kMoreKeys) / (rate * heads);
}

double copy_seconds(const DeviceDescription& device, const ProgramEntry& entry,
                    std::string_view name) {
  const double rate = device.memory_rate * device.constants.memory;
  const bool to_host = name == "to the device" || name == "to the host";
  if (to_host && device.host_rate > 0) return entry.bytes / device.host_rate;
  const bool reads = name != "fill";  // as much as it writes
  return (reads ? 2 : 1) * entry.bytes / rate;
}

}  // namespace

class DeviceCosts::Measured : public MeasuredRatios {
  using MeasuredRatios::MeasuredRatios;
};

DeviceDescription with_tf32(DeviceDescription device) {
  if (device.tf32_peak > 0) device.peak[DType::kF32] = device.tf32_peak;
  return device;
}

DeviceCosts::DeviceCosts(DeviceDescription device) : device_(std::move(device)) {
  if (device_.operations.empty()) return;
  std::vector<double> seconds;
  for (const MeasuredOperation& one : device_.operations) {
    seconds.push_back(
        modelled({.dtype = one.dtype, .sizes = one.sizes, .flops = one.flops, .bytes = one.bytes},
                 one.operation));
  }
  measured_ = std::make_unique<const Measured>(device_.operations, seconds);
}

DeviceCosts::DeviceCosts(DeviceCosts&&) noexcept = default;
DeviceCosts& DeviceCosts::operator=(DeviceCosts&&) noexcept = default;
DeviceCosts::~DeviceCosts() = default;

double DeviceCosts::modelled(const ProgramEntry& entry, std::string_view name) const {
  const DeviceDescription::Constants& fitted = device_.constants;
  if (entry.kind == ProgramEntry::Kind::kCopy) {
    return fitted.start + copy_seconds(device_, entry, name);
  }
  const double rate = device_.memory_rate * fitted.memory;
  switch (const Work work = work_of(name)) {
    case Work::kOther:
      return fitted.start + std::max(entry.bytes / (rate * share_of(device_, name)),
                                     entry.flops / device_.vector_peak);
    case Work::kAttention:
    case Work::kAttentionBackward:
      return fitted.start + std::max(attention_work(device_, work, entry), entry.bytes / rate);
    default:
      return fitted.start + std::max(product_work(device_, work, entry, name), entry.bytes / rate);
  }
}

double DeviceCosts::seconds(const ProgramEntry& entry, std::string_view name) const {
  const double model = modelled(entry, name);
  if (!measured_ || entry.kind == ProgramEntry::Kind::kCopy) return model;
  return measured_->seconds(entry, name, model).value_or(model);
}

}  // namespace trireme::plan

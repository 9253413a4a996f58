#include "support/comm_device.h"
#include "support/fake_cuda.h"

namespace trireme::testing {

CommDevice make_comm_device(std::uint64_t seed) {
  return {std::make_shared<FakeCuda>(seed), true};  // its memory is the host's
}

std::size_t host_waits(const CommDevice& device) {
  return static_cast<FakeCuda&>(*device.cuda).host_waits();
}

std::vector<std::string> leftovers(const CommDevice& device) {
  auto& fake = static_cast<FakeCuda&>(*device.cuda);
  fake.run_all();
  std::vector<std::string> found = fake.faults();
  const auto check = [&](const char* what, std::size_t count) {
    if (count > 0) found.push_back(std::to_string(count) + " " + what + " are left");
  };
  check("blocks of the device", fake.device_blocks());
  check("blocks of pinned memory", fake.pinned_blocks());
  check("events", fake.events());
  check("streams", fake.streams());
  return found;
}

}  // namespace trireme::testing

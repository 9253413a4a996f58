#include "rank_place.h"

#include <fstream>
#include <string>
#include <type_traits>

#include <unistd.h>

#include "trireme/comm/launcher.h"

namespace trireme {
namespace {

static_assert(std::is_trivially_copyable_v<Place>);

Place own_place() {
  Place place;
  node_name().copy(place.node, sizeof place.node - 1);
  std::string boot_id;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot_id);
  boot_id.copy(place.machine, sizeof place.machine - 1);
  place.cpus = own_cpu_mask();
  return place;
}

}  // namespace

std::size_t memory_of_host() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::vector<Place> gather_places(Communicator& world) {
  Place own = own_place();
  std::vector<Place> places(static_cast<std::size_t>(world.size()));
  const auto bytes = [](Place* place, std::size_t count) {
    return Tensor::wrap(place, {static_cast<std::int64_t>(count * sizeof(Place))}, DType::kU8);
  };
  world.all_gather(Stream(), bytes(&own, 1), bytes(places.data(), places.size())).wait_host();
  return places;
}

}  // namespace trireme

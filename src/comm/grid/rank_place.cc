#include "comm/grid/rank_place.h"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include <unistd.h>

#include "trireme/base/control_group.h"
#include "trireme/base/kernel_files.h"
#include "trireme/base/node_names.h"
#include "trireme/comm/launcher.h"

namespace trireme {
namespace {

static_assert(std::is_trivially_copyable_v<Place>);

Place own_place() {
  Place place;
  node_name().copy(place.node, sizeof place.node - 1);
  host_name().copy(place.host, sizeof place.host - 1);
  first_line_of("/proc/sys/kernel/random/boot_id").copy(place.machine, sizeof place.machine - 1);
  place.cpus = own_cpu_mask();
  const std::vector<GroupLimit> limits = group_limits(GroupResource::kProcessors);
  for (std::size_t i = 0; i < std::min(limits.size(), place.quotas.size()); ++i) {
    place.quotas[i] = {std::hash<std::string>()(limits[i].group), limits[i].amount};
  }
  return place;
}

}  // namespace

std::size_t memory_of_host() {
  return static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

std::optional<double> quota_of(const std::vector<Place>& of_machine, std::size_t own) {
  std::vector<std::vector<GroupLimit>> limits;
  for (const Place& place : of_machine) {
    limits.emplace_back();
    for (const Place::Quota& quota : place.quotas) {
      if (quota.processors > 0.0) {
        limits.back().push_back({std::to_string(quota.group), quota.processors});
      }
    }
  }
  const auto share = least_share(limits, own);
  return share ? std::optional(share->amount) : std::nullopt;
}

bool names_are_shared(const std::vector<Place>& places) {
  std::unordered_map<std::string_view, std::string_view> machines;
  return std::ranges::any_of(places, [&](const Place& place) {
    return machines.emplace(place.node, place.machine).first->second != place.machine;
  });
}

std::vector<Place> gather_places(Communicator& world) {
  Place own = own_place();
  std::vector<Place> places(static_cast<std::size_t>(world.size()));
  const auto bytes = [](Place* place, std::size_t count) {
    return Tensor::wrap(place, {static_cast<std::int64_t>(count * sizeof(Place))}, DType::kU8);
  };
  world.all_gather(Stream(), bytes(&own, 1), bytes(places.data(), places.size())).wait_host();
  if (names_are_shared(places)) {
    call_node_by_host();
    for (Place& place : places) std::ranges::copy(place.host, place.node);
  }
  return places;
}

}  // namespace trireme

#include "comm/mpi/eager_messages.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string_view>

#include "trireme/base/kernel_files.h"

namespace trireme {
namespace {

// Whether a transport takes an adapter; its variants do, too: rc_mlx5, dc_x.
bool takes_adapter(std::string_view transport) {
  constexpr std::array<std::string_view, 5> kWords = {"rc", "dc", "ud", "ib", "all"};
  return std::ranges::any_of(kWords, [&](auto word) { return transport.starts_with(word); });
}

}  // namespace

bool tcp_alone(const std::filesystem::path& adapters, const char* transports) {
  if (kernel_names(adapters).empty()) return true;
  std::string_view rest = transports == nullptr ? "" : transports;
  bool tcp = false;
  while (!rest.empty()) {
    const std::string_view transport = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(transport.size() + 1, rest.size()));
    if (takes_adapter(transport) || transport.starts_with('^')) return false;
    tcp |= transport.starts_with("tcp");
  }
  return tcp;
}

void send_eagerly_over_tcp() {
  if (!tcp_alone("/sys/class/infiniband", std::getenv("UCX_TLS"))) return;
  setenv("UCX_RNDV_THRESH", "inf", /*overwrite=*/0);
}

}  // namespace trireme

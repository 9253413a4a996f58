#include "trireme/train/nccl_keys.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/installed_file.h"
#include "trireme/base/log.h"
#include "trireme/base/small_file.h"
#include "trireme/topology/nccl_table.h"

namespace trireme {
namespace {

constexpr const char* kPlugin = "lib/trireme/libtrireme_tuner.so";

// The plugin gets the whole text, whatever the communicator. Rank 0 says, once for each size, where
// it has no table for one of its communicators.
class TableOfUser {
 public:
  TableOfUser(Runtime& runtime, const std::string& path)
      : path_(path), hosts_(runtime.hosts()), tells_(runtime.rank() == 0) {
    text_ = runtime.world().read_once([&] {
      std::string text = read_small_file("nccl.tuner", path);
      std::string problem;
      if (!read_nccl_tables(text, problem)) {
        throw ConfigError(fmt::format("nccl.tuner {}: {}", path, problem));
      }
      return text;
    });
    std::string ignored;
    tables_ = read_nccl_tables(text_, ignored).value();
  }

  const std::string& text_for(const std::string& name, const std::vector<int>& ranks) {
    std::set<std::string> nodes;
    for (const int rank : ranks) nodes.insert(hosts_[static_cast<std::size_t>(rank)]);
    const bool known = find_nccl_table(tables_, ranks.size(), nodes.size()) != nullptr;
    if (tells_ && !known && told_.insert({ranks.size(), nodes.size()}).second) {
      report_line(
          fmt::format("nccl.tuner {}: no table for {} ranks on {} node{} ({}): NCCL chooses "
                      "itself there",
                      path_, ranks.size(), nodes.size(), nodes.size() == 1 ? "" : "s", name));
    }
    return text_;
  }

 private:
  const std::string path_;
  const std::vector<std::string> hosts_;  // by rank
  const bool tells_;
  std::string text_;
  std::vector<NcclTable> tables_;
  std::set<std::pair<std::size_t, std::size_t>> told_;
};

}  // namespace

NcclTuning nccl_tuning(Runtime& runtime, const Config::Nccl& keys) {
  NcclTuning tuning;
  tuning.min_channels = keys.min_channels;
  tuning.max_channels = keys.max_channels;
  tuning.channels_per_peer = keys.channels_per_peer;
  tuning.traffic_class = keys.traffic_class;
  tuning.collnet = keys.collnet;
  tuning.network = keys.network.value_or("");
  if (keys.tuner == "off") return tuning;
  tuning.plugin = find_near_program({kPlugin}).value_or(kPlugin).string();
  const auto table = std::make_shared<TableOfUser>(runtime, keys.tuner);
  tuning.table = [table](const std::string& name, const std::vector<int>& ranks) {
    return table->text_for(name, ranks);
  };
  return tuning;
}

}  // namespace trireme

#include "trireme/setup/named_files.h"

#include <cstddef>
#include <utility>

#include "trireme/base/small_file.h"
#include "trireme/ops/product_algorithms.h"
#include "trireme/optim/learning_rate_table.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/stored_rates.h"

namespace trireme {
namespace {

void check_network(const std::string& files) {
  if (files == "auto" || files == "none") return;
  FabricSources sources = sources_in(files);
  if (const std::string rates = std::exchange(sources.network, ""); !rates.empty()) {
    read_network_rates(read_small_file("the file of network rates", rates), rates);
  }
  if (!sources.empty()) read_cluster(sources, /*strict=*/true);
}

}  // namespace

std::string learning_rates_file(const Config::Schedule& schedule) {
  constexpr std::size_t kMostMiB = 1;
  return schedule.file ? read_small_file("schedule.file", *schedule.file, kMostMiB) : "";
}

std::vector<optim::LearningRatePoint> learning_rates_in(const std::string& contents,
                                                        const Config::Schedule& schedule) {
  if (!schedule.file) return {};
  return optim::read_learning_rates(contents, "schedule.file " + *schedule.file);
}

std::string products_file(const Config::Cuda& cuda) {
  return cuda.products.empty() ? "" : read_small_file("cuda.products", cuda.products);
}

void check_named_files(const Config& config) {
  const std::string& products = config.cuda.products;
  if (!products.empty())
    ops::read_products(products_file(config.cuda), "cuda.products " + products);
  learning_rates_in(learning_rates_file(config.schedule), config.schedule);
  check_network(config.comm.network);
  const std::string &order = config.grid.order, &tuner = config.nccl.tuner;
  if (order != "auto" && order != "rank") read_small_file("grid.order", order);
  if (tuner != "off" && tuner != "network") read_small_file("nccl.tuner", tuner);
}

}  // namespace trireme

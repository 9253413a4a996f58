#include "trireme/study/product_times.h"

#include <algorithm>
#include <array>
#include <set>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/study/bench.h"

#include "study/operation_timer.h"

namespace trireme::bench {
namespace {

constexpr double kWorthwhile = 0.99;  // of the first proposal's time

class ProductTimer {
 public:
  ProductTimer(ops::Context& ctx, const ProductTimesOptions& options)
      : ctx_(ctx),
        algorithms_(*ops::product_algorithms(ctx)),
        options_(options),
        timer_(ctx, {.cold = true}) {}

  ProductTimes time(const ops::Product& product, std::int64_t calls) {
    ProductTimes times{.product = product,
                       .calls = calls,
                       .algorithms = algorithms_.proposed(product, options_.most),
                       .seconds = {}};
    std::erase_if(times.algorithms, [&](const ops::ProductAlgorithm& one) {
      return !algorithms_.fits(product, one);
    });
    const std::function<void()> run = ops::made_up_product(ctx_, product);
    std::vector<std::vector<double>> all(times.algorithms.size());
    for (int round = -1; round < options_.repeats; ++round) {  // the first loads kernels
      for (std::size_t i = 0; i < all.size(); ++i) {
        algorithms_.use(std::array{ops::ProductChoice{product, times.algorithms[i]}});
        const double seconds = timer_.once(run);
        if (round >= 0) all[i].push_back(seconds);
      }
    }
    for (std::vector<double>& of_one : all) times.seconds.push_back(median(std::move(of_one)));
    return times;
  }

 private:
  ops::Context& ctx_;
  ops::ProductAlgorithms& algorithms_;
  ProductTimesOptions options_;
  OperationTimer timer_;
};

}  // namespace

std::size_t fastest(std::span<const double> seconds) {
  const auto least = std::ranges::min_element(seconds);
  if (least == seconds.end() || *least > kWorthwhile * seconds.front()) return 0;
  return static_cast<std::size_t>(least - seconds.begin());
}

ops::ProductChoice ProductTimes::choice() const {
  const std::size_t best = fastest(seconds);
  return {.product = product,
          .algorithm = algorithms[best],
          .seconds = seconds[best],
          .first = seconds.front()};
}

std::vector<ProductTimes> time_products(ops::Context& ctx, const ProductTimesOptions& options,
                                        const std::function<void(const ProductTimes&)>& report) {
  const std::map<ops::Product, std::int64_t> made = ops::product_algorithms(ctx)->made();
  ctx.allocator->give_back_reserve();  // what ran before held other sizes
  std::vector<ProductTimes> all;
  ProductTimer timer(ctx, options);
  for (const auto& [product, calls] : made) {
    ProductTimes times = timer.time(product, calls);
    if (times.algorithms.empty()) continue;  // none can be made again by its attributes
    report(times);
    all.push_back(std::move(times));
  }
  ops::product_algorithms(ctx)->use({});
  return all;
}

ops::ProductFile gathered_products(Communicator& comm, const ops::ProductMachine& machine,
                                   std::span<const ProductTimes> times) {
  ops::ProductFile mine{.machine = machine, .choices = {}};
  for (const ProductTimes& one : times) mine.choices.push_back(one.choice());
  const auto texts = gather_lines(comm, {ops::write_products(mine)});
  ops::ProductFile file{.machine = machine, .choices = {}};
  std::set<ops::Product> known;
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    std::string text;
    for (const std::string& line : texts[rank]) text += line + '\n';
    const ops::ProductFile of_rank = ops::read_products(text, fmt::format("rank {}", rank));
    if (of_rank.machine != machine) {
      throw ConfigError(
          fmt::format("rank {} has {} with {}, and rank {} has {} with {}: products "
                      "are timed on GPUs and libraries of one kind",
                      comm.rank(), machine.gpu, machine.library, rank, of_rank.machine.gpu,
                      of_rank.machine.library));
    }
    for (const ops::ProductChoice& choice : of_rank.choices) {
      if (known.insert(choice.product).second) file.choices.push_back(choice);
    }
  }
  return file;
}

}  // namespace trireme::bench

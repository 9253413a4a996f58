#include "train/chosen_products.h"

#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "trireme/io/outer_record.h"
#include "trireme/ops/product_algorithms.h"
#include "trireme/setup/named_files.h"

namespace trireme {
namespace {

std::string text_of(const ops::ProductMachine& machine) {
  const std::string part = machine.multiprocessors == 0
                               ? ""
                               : fmt::format(", {} multiprocessors", machine.multiprocessors);
  return fmt::format("{} with {}, {} MiB of workspace{}", machine.gpu, machine.library,
                     machine.workspace >> 20, part);
}

// Collective over the world. Which of them fit every rank; and the lowest rank whose machine is
// another than theirs, the number of ranks where there is none.
std::pair<std::vector<int>, int> fitting(Communicator& world, ops::Context& ctx,
                                         const ops::ProductFile& file) {
  const bool here = ops::product_machine(ctx) == file.machine;
  ops::ProductAlgorithms& algorithms = *ops::product_algorithms(ctx);
  std::vector<int> fit;
  for (const ops::ProductChoice& choice : file.choices) {
    fit.push_back(here && algorithms.fits(choice.product, choice.algorithm) ? 1 : 0);
  }
  if (!fit.empty()) world.all_reduce_host(std::span<int>(fit), ReduceOp::kMin);
  return {fit, world.all_reduce_host(here ? world.size() : world.rank(), ReduceOp::kMin)};
}

}  // namespace

ChosenProducts choose_products(Runtime& runtime, ops::Context& ctx,
                               const std::optional<Checkpoint>& checkpoint, const Config& config) {
  if (config.cuda.products.empty()) return {};
  if (ops::product_algorithms(ctx) == nullptr) {
    return {.line = "cuda.products is for products on GPUs: on a CPU it changes nothing"};
  }
  Communicator& world = runtime.world();
  const std::string named = "cuda.products " + config.cuda.products;
  std::string before;
  if (checkpoint) {
    const auto found = checkpoint->info().extra.find(kProductsAttribute);
    if (found != checkpoint->info().extra.end()) before = found->second;
  }
  ops::ProductFile file =
      before.empty()
          ? ops::read_products(world.read_once([&] { return products_file(config.cuda); }), named)
          : ops::read_products(before, checkpoint->path());
  const auto [fit, other] = fitting(world, ctx, file);
  if (other < world.size()) {
    const std::string here = world.broadcast_text(text_of(ops::product_machine(ctx)), other);
    return {.line = fmt::format("{}: of {}, but rank {} is {}: cuBLASLt chooses itself", named,
                                text_of(file.machine), other, here)};
  }
  std::vector<ops::ProductChoice> taken;
  std::string refused;
  for (std::size_t i = 0; i < fit.size(); ++i) {
    if (fit[i] == 1) {
      taken.push_back(file.choices[i]);
    } else if (refused.empty()) {
      refused = ops::text_of(file.choices[i].product);
    }
  }
  const std::size_t missing = file.choices.size() - taken.size();
  ops::product_algorithms(ctx)->use(taken);
  file.choices = std::move(taken);
  const std::string count = fmt::format("{} algorithms", file.choices.size());
  ChosenProducts chosen{
      .line = fmt::format("{}: {}{}", named, count, before.empty() ? "" : ", as before"),
      .file = ops::write_products(file),
      .mark = ""};
  chosen.mark = fmt::format("{}, {}", count, digest_of(chosen.file));
  if (missing > 0) {
    chosen.line += fmt::format("; {} do not fit, so cuBLASLt chooses there itself, as for {}",
                               missing, refused);
  }
  return chosen;
}

}  // namespace trireme

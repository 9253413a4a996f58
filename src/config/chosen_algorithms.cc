#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/config/config.h"

namespace trireme {
namespace {

std::string or_nearest(const std::string& name, const std::vector<std::string>& known) {
  const auto nearest = nearest_name(name, known);
  return fmt::format("there are {}{}", fmt::join(known, ", "),
                     nearest ? fmt::format("; did you mean {}?", *nearest) : "");
}

ChosenAlgorithm read_choice(const std::string& word, const std::string& order) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(fmt::format("comm.algorithms {}: {}", shown(word), why));
  };
  const std::size_t middle = word.find('=');
  if (middle == std::string::npos) {
    refuse("must be auto or COLLECTIVE=ALGORITHM, as in all_reduce=halving");
  }
  const std::string left = word.substr(0, middle), right = word.substr(middle + 1);
  std::vector<std::string> collectives, algorithms;
  for (const Collective one : kCollectives) {
    if (!algorithms_of(one).empty()) collectives.emplace_back(name_of(one));
  }
  const auto collective = collective_named(left);
  if (!collective || algorithms_of(*collective).empty()) {
    refuse(fmt::format("no such collective, {}", or_nearest(left, collectives)));
  }
  const auto ours = algorithms_of(*collective);
  const auto carries = [&](Algorithm one) {
    return one == Algorithm::kLibrary || std::ranges::find(ours, one) != ours.end();
  };
  for (const Algorithm one : kAlgorithms) {
    const bool allowed =
        order == "any" || (keeps_order(*collective, one) && one != Algorithm::kLibrary);
    if (carries(one) && allowed) algorithms.emplace_back(name_of(one));
  }
  const auto algorithm = algorithm_named(right);
  if (!algorithm || !carries(*algorithm)) {
    refuse(fmt::format("no such algorithm of {}, {}", left, or_nearest(right, algorithms)));
  }
  if (std::ranges::find(algorithms, right) == algorithms.end()) {
    refuse(fmt::format("comm.order tree allows {}; comm.order any allows this one too",
                       fmt::join(algorithms, ", ")));
  }
  return {*collective, *algorithm};
}

}  // namespace

std::vector<ChosenAlgorithm> chosen_algorithms(const Config::Comm& comm) {
  std::vector<ChosenAlgorithm> chosen;
  if (comm.algorithms == "auto") return chosen;
  for (const std::string& word : split_list(comm.algorithms)) {
    const ChosenAlgorithm one = read_choice(word, comm.order);
    if (std::ranges::find(chosen, one.collective, &ChosenAlgorithm::collective) != chosen.end()) {
      throw ConfigError(fmt::format("comm.algorithms {}: {} stands there twice",
                                    shown(comm.algorithms), name_of(one.collective)));
    }
    chosen.push_back(one);
  }
  return chosen;
}

}  // namespace trireme

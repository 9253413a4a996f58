#include "trireme/config/stage_cut.h"

#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/limits.h"
#include "trireme/config/number_list.h"

namespace trireme {
namespace {

constexpr std::string_view kEqually = "equal", kByRate = "auto";

}  // namespace

StageCut StageCut::of_blocks(std::vector<int> blocks) {
  StageCut result;
  result.blocks_ = std::move(blocks);
  return result;
}

StageCut StageCut::automatic(std::vector<int> blocks) {
  StageCut result = of_blocks(std::move(blocks));
  result.automatic_ = true;
  return result;
}

std::string read_value(std::string_view text, StageCut& value, const Limit& /*limit*/) {
  const std::string recorded = fmt::format("{} ", kByRate);
  if (text == kEqually || text == kByRate) {
    value = text == kByRate ? StageCut::automatic() : StageCut();
    return "";
  }
  const bool is_record = text.starts_with(recorded);
  auto blocks =
      numbers_in<int>(is_record ? text.substr(recorded.size()) : text, between(1, limits::kLayers));
  if (!blocks) return "must be equal, auto, or the blocks of each stage, 1 at least, as in 5,3";
  value =
      is_record ? StageCut::automatic(*std::move(blocks)) : StageCut::of_blocks(*std::move(blocks));
  return "";
}

std::string write_value(const StageCut& value) {
  const std::string numbers = fmt::format("{}", fmt::join(value.blocks(), ","));
  if (!value.is_auto()) return numbers.empty() ? std::string(kEqually) : numbers;
  return numbers.empty() ? std::string(kByRate) : fmt::format("{} {}", kByRate, numbers);
}

}  // namespace trireme

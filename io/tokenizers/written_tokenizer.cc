#include "io/tokenizers/written_tokenizer.h"

#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

void WrittenTokenizer::add(std::string_view text, std::int32_t token, bool is_special) {
  added.push_back(Json::object({{"id", token},
                                {"content", text},
                                {"single_word", false},
                                {"lstrip", false},
                                {"rstrip", false},
                                {"normalized", !is_special},
                                {"special", is_special}}));
}

void refuse_to_write(const std::string& why) {
  throw DataError(fmt::format("the tokenizer cannot become a tokenizer.json: {}", why));
}

Json part_of(const char* type, const char* key, Json value) {
  return Json::object({{"type", type}, {key, std::move(value)}});
}

Json sequence_of(const char* key, Json parts) {
  if (parts.items().empty()) return {};
  if (parts.items().size() == 1) return parts.at(0);
  return part_of("Sequence", key, std::move(parts));
}

Json split_at(std::string_view regex) {
  return Json::object({{"type", "Split"},
                       {"pattern", Json::object({{"Regex", regex}})},
                       {"behavior", "Isolated"},
                       {"invert", false}});
}

}  // namespace trireme

// Reads the config.json of models of transformers.
#pragma once

#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/json.h"

namespace trireme::models {

// The fields of a config.json. null is the same as a missing field. It remembers which fields were
// asked for. Errors are ConfigErrors that name the field.
class ForeignConfig {
 public:
  // `json` must outlive this object.
  explicit ForeignConfig(const Json& json) : json_(json) {}

  std::int64_t integer(std::string_view field);  // which must be there
  std::int64_t integer(std::string_view field, std::int64_t otherwise);
  double number(std::string_view field, double otherwise);
  bool boolean(std::string_view field, bool otherwise);
  std::string text(std::string_view field, const std::string& otherwise);
  // The object of that name; nullptr if there is none.
  const Json* object(std::string_view field);
  // The field itself; nullptr if it is missing.
  const Json* value(std::string_view field) { return find(field); }
  // Whether the field is there as null, where that is not the same as missing.
  bool is_null(std::string_view field);

  // Throws unless the field is missing or has this value: "... is X: models of WHOSE have Y alone".
  void require(std::string_view field, const Json& value, std::string_view whose);
  void refuse(std::string_view field, std::string_view whose);  // unless it is missing

  // Says that these fields change no result of a forward.
  void ignore(std::initializer_list<std::string_view> fields);
  // The fields that nothing has asked for, but for those that every model may have and that change
  // no result.
  std::vector<std::string> rest() const;

 private:
  const Json* find(std::string_view field);
  template <class Read>
  auto read(std::string_view field, const Json& value, const Read& read_value) const;

  const Json& json_;
  std::set<std::string, std::less<>> asked_;
};

}  // namespace trireme::models

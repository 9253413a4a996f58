#include "io/tokenizers/tokens_around.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "trireme/base/error.h"

#include "io/tokenizers/tokenizer_folder.h"
#include "io/tokenizers/tokenizer_parts.h"

namespace trireme {
namespace {

constexpr const char* kTemplate = "TemplateProcessing";
constexpr const char* kText = "Sequence";
constexpr const char* kSpecial = "SpecialToken";

Json piece(const char* what, std::string_view id, Json type_id) {
  return Json::object({{what, Json::object({{"id", id}, {"type_id", std::move(type_id)}})}});
}

// The names of the tokens at the beginning of a template.
std::vector<std::string> names_before(const Json& pieces) {
  std::vector<std::string> names;
  for (const Json& one : pieces.items()) {
    const Json* special = one.find(kSpecial);
    if (!special) break;
    names.push_back(special->at("id").text());
  }
  return names;
}

bool end_in(const Json::Array& pieces, const std::vector<std::string>& names) {
  if (pieces.size() < names.size()) return false;
  return std::ranges::equal(std::span(pieces).last(names.size()), names,
                            [](const Json& one, const std::string& name) {
                              const Json* special = one.find(kSpecial);
                              return special && special->at("id").text() == name;
                            });
}

// A template with another token before each text. `old`: the names of those before it now.
Json with_token_before(const Json& pieces, const std::vector<std::string>& old,
                       const std::optional<TokenBefore>& begin) {
  Json::Array made;
  for (const Json& one : pieces.items()) {
    const Json* text = one.find(kText);
    if (text) {
      if (end_in(made, old)) made.resize(made.size() - old.size());
      if (begin) made.push_back(piece(kSpecial, begin->name, text->at("type_id")));
    }
    made.push_back(one);
  }
  Json all = Json::array();
  for (Json& one : made) all.push_back(std::move(one));
  return all;
}

Json known(const TokenBefore& token) {
  return Json::object({{"id", token.name},
                       {"ids", Json::array({token.token})},
                       {"tokens", Json::array({token.name})}});
}

// Nothing where a part has no place for such a token.
std::optional<Json> begun_with(const Json& part, const std::optional<TokenBefore>& begin) {
  const std::string& type = part.at("type").text();
  Json made = part;
  if (type == kTemplate) {
    const std::vector<std::string> old = names_before(part.at("single"));
    for (const char* which : {"single", "pair"}) {
      made[which] = with_token_before(part.at(which), old, begin);
    }
    if (begin) made["special_tokens"][begin->name] = known(*begin);
    return made;
  }
  if (type == "Sequence") {
    bool is_done = false;
    Json parts = Json::array();
    for (const Json& one : part.at("processors").items()) {
      const auto changed = is_done ? std::nullopt : begun_with(one, begin);
      is_done = is_done || changed;
      parts.push_back(changed.value_or(one));
    }
    if (!is_done && begin) parts.push_back(begin_with(*begin));
    made["processors"] = std::move(parts);
    return is_done || begin ? std::optional(made) : std::nullopt;
  }
  return {};
}

// Whether it is one of BERT's or RoBERTa's that puts a begin of text.
bool puts_begin(const Json& part) {
  if (const Json* parts = part.find("processors")) {
    return std::ranges::any_of(parts->items(), puts_begin);
  }
  const Json* cls = part.find("cls");
  return cls && cls->at(0).text() != "[CLS]";
}

// Returns whether the file says it now.
bool say_in_post_processor(Json& file, const std::optional<TokenBefore>& begin) {
  const Json* part = given(file, "post_processor");
  if (!part) {
    if (begin) file["post_processor"] = begin_with(*begin);
    return true;
  }
  if (auto made = begun_with(*part, begin)) {
    file["post_processor"] = std::move(*made);
    return true;
  }
  if (!begin) return !puts_begin(*part);
  if (part->at("type").text() != "ByteLevel") return false;  // one of BERT's
  file["post_processor"] = Json::object(
      {{"type", "Sequence"}, {"processors", Json::array({*part, begin_with(*begin)})}});
  return true;
}

class Change {
 public:
  Change(std::map<std::string, std::string>& files, const Tokenizer& said, const Tokenizer& wanted)
      : files_(files),
        other_end_(said.end_of_text() != wanted.end_of_text()),
        other_begin_(said.begin_of_text() != wanted.begin_of_text()),
        end_{std::string(wanted.name_of(wanted.end_of_text())), wanted.end_of_text()} {
    if (const auto begin = wanted.begin_of_text()) {
      begin_ = TokenBefore{std::string(wanted.name_of(*begin)), *begin};
    }
  }

  FilesChanged run() {
    if (!other_end_ && !other_begin_) return {};
    change("tokenizer_config.json", [&](Json& json) { return say_in_config(json); });
    change("special_tokens_map.json", [&](Json& json) { return say_in_names(json, false); });
    change("generation_config.json", [&](Json& json) { return say_in_numbers(json); });
    if (other_begin_) {
      change("tokenizer.json", [&](Json& json) { return say_in_post_processor(json, begin_); });
      if (files_.contains("tekken.json")) changed_.others.emplace_back("tekken.json");
    }
    return std::move(changed_);
  }

 private:
  // `say` returns whether the file says what is wanted.
  template <class Say>
  void change(const char* name, Say say) {
    const auto file = files_.find(name);
    if (file == files_.end()) return;
    bool is_said = false;
    try {
      Json json = Json::parse(file->second);
      const std::string before = json.to_cbor();
      is_said = say(json);
      if (json.to_cbor() != before) {
        file->second = json.dump(2) + "\n";
        changed_.names.emplace_back(name);
      }
    } catch (const JsonError&) {  // nothing that is known
    } catch (const DataError&) {
    }
    if (!is_said) changed_.others.emplace_back(name);
  }

  // `adds`: fields that are not there are added.
  bool say_in_names(Json& json, bool adds) const {
    const auto say = [&](const char* field, const TokenBefore& token) {
      if (adds || json.find(field)) json[field] = token.name;
      return !token.name.empty();
    };
    const bool end = !other_end_ || say("eos_token", end_);
    return (!other_begin_ || !begin_ || say("bos_token", *begin_)) && end;
  }

  // Where nothing says whether a begin is added, the post-processor does.
  bool say_in_config(Json& json) const {
    const bool says_begin = parse_tokenizer_config(json.dump(), "").adds_begin.has_value() ||
                            !files_.contains("tokenizer.json");
    if (other_begin_ && says_begin) json["add_bos_token"] = begin_.has_value();
    return say_in_names(json, true);
  }

  bool say_in_numbers(Json& json) const {
    const Json* begin = json.find("bos_token_id");
    if (other_begin_ && begin) json["bos_token_id"] = begin_ ? Json(begin_->token) : Json();
    const Json* ends = json.find("eos_token_id");
    if (!other_end_ || !ends) return true;
    if (!ends->is_array()) {
      json["eos_token_id"] = end_.token;
      return true;
    }
    // Where texts may end in several ways, theirs is one more.
    Json all = Json::array({end_.token});
    for (const Json& one : ends->items()) {
      if (one.integer() == end_.token) return true;
      all.push_back(one);
    }
    json["eos_token_id"] = std::move(all);
    return true;
  }

  std::map<std::string, std::string>& files_;
  const bool other_end_, other_begin_;
  const TokenBefore end_;
  std::optional<TokenBefore> begin_;
  FilesChanged changed_;
};

}  // namespace

Json begin_with(const TokenBefore& token) {
  const auto text = [](const char* which, int type) { return piece(kText, which, type); };
  const auto special = [&](int type) { return piece(kSpecial, token.name, type); };
  return Json::object({{"type", kTemplate},
                       {"single", Json::array({special(0), text("A", 0)})},
                       {"pair", Json::array({special(0), text("A", 0), special(1), text("B", 1)})},
                       {"special_tokens", Json::object({{token.name, known(token)}})}});
}

FilesChanged say_tokens_around(std::map<std::string, std::string>& files, const Tokenizer& said,
                               const Tokenizer& wanted) {
  return Change(files, said, wanted).run();
}

}  // namespace trireme

#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/inference/mask_filler.h"
#include "trireme/tasks/masked_texts.h"
#include "trireme/tasks/texts.h"

#include "cli/model_tokenizer.h"
#include "cli/predict.h"
#include "cli/text_lines.h"

namespace trireme::cli {
namespace {

// Reads texts, as many at a time as the grid computes. The leading rank reads them and sends them
// to all.
class TextBatches {
 public:
  TextBatches(Communicator& comm, const PredictArguments& given)
      : comm_(comm),
        text_(given.text),
        lines_(given.text ? std::vector<std::string>{} : split_list(given.input)) {}

  // Returns up to `most` texts, on every rank; none after the last one. Throws DataError, which
  // names the file.
  std::vector<NamedText> next(std::int64_t most) {
    const Json all = Json::from_cbor(comm_.read_once([&] {
      Json read = Json::array();
      std::size_t bytes = 0;
      for (std::int64_t i = 0; i < most && bytes < kMostBytesAtOnce; ++i) {
        const std::optional<NamedText> one = read_one();
        if (!one) break;
        bytes += one->text.size();
        read.push_back(Json::array({one->name, one->text}));
      }
      return read.to_cbor();
    }));
    std::vector<NamedText> texts;
    for (const Json& one : all.items()) texts.push_back({one.at(0).text(), one.at(1).text()});
    return texts;
  }

 private:
  std::optional<NamedText> read_one() {
    if (text_) return NamedText{"--text", *std::exchange(text_, std::nullopt)};
    return lines_.next();
  }

  Communicator& comm_;
  std::optional<std::string> text_;
  TextLines lines_;
};

// Says on the leading rank what is likely to be masked.
class MaskSpeaker {
 public:
  MaskSpeaker(TokenizerPtr tokenizer, const SpecialTokens& special, JsonLines& json)
      : tokenizer_(std::move(tokenizer)),
        special_(special),
        joins_spaces_(joins_spaces(*tokenizer_)),
        json_(json) {}

  // `masks` has the likely tokens of each [MASK] of the text.
  void say(const NamedText& text, std::span<const LikelyTokens> masks) {
    const std::string full = filled(text.text, masks);
    print_line(fmt::format("{}: {}", shown(text.name), printable(full)));
    Json all = Json::array();
    for (std::size_t i = 0; i < masks.size(); ++i) {
      std::string line = fmt::format("  {} {}:", kMaskText, i + 1);
      Json likely = Json::array();
      for (const LikelyToken& one : masks[i]) {
        const auto share = shortest(one.probability);
        const std::string word = word_of(one.token);
        line += fmt::format("{} \"{}\" {:.2f} %", likely.items().empty() ? "" : ",", shown(word),
                            100.0 * share);
        likely.push_back(
            Json::object({{"token", word}, {"number", one.token}, {"probability", share}}));
      }
      print_line(line);
      all.push_back(std::move(likely));
    }
    json_.add(Json::object(
        {{"from", text.name}, {"text", text.text}, {"filled", full}, {"masks", std::move(all)}}));
  }

  // Returns whether the next ones are in vain.
  bool flush() {
    json_.flush();
    return json_.in_vain();
  }
  void finish() { json_.finish(); }

 private:
  std::string word_of(std::int32_t token) const {
    if (const std::string_view name = special_.name_of(token); !name.empty()) {
      return std::string(name);
    }
    const std::string_view bytes = tokenizer_->bytes_of(token);
    return bytes.empty() ? fmt::format("token {}", token) : std::string(bytes);
  }

  // The text with the likeliest token in the place of each [MASK].
  std::string filled(std::string_view text, std::span<const LikelyTokens> masks) const {
    std::vector<std::string> words;
    for (const LikelyTokens& likely : masks) words.push_back(word_of(likely.front().token));
    return filled_text(text, words, joins_spaces_);
  }

  TokenizerPtr tokenizer_;
  SpecialTokens special_;
  bool joins_spaces_;
  JsonLines& json_;
};

std::vector<TextToFill> encoded(const std::vector<NamedText>& texts, const Tokenizer& tokenizer,
                                const SpecialTokens& special, std::int64_t context) {
  std::vector<TextToFill> all;
  for (const NamedText& one : texts) {
    all.push_back(text_to_fill(tokenizer, special, one.text));
    if (all.back().masks.empty()) {
      throw DataError(fmt::format("{}: the text has no {} to fill", shown(one.name), kMaskText));
    }
    if (std::ssize(all.back().tokens) > context) {
      throw DataError(fmt::format(
          "{}: a text of {} tokens, with [CLS] and [SEP], but the model's context is {}",
          shown(one.name), all.back().tokens.size(), context));
    }
  }
  return all;
}

void check_keys_of_texts(const InferenceModel& model, const PredictArguments& given) {
  const char* const key = given.size                     ? "size"
                          : !given.normalisation.empty() ? "normalisation"
                          : given.skips_bad              ? "skip-bad"
                                                         : nullptr;
  if (key == nullptr) return;
  throw ConfigError(
      fmt::format("--{} is for models of pictures, and {} is one of texts: leave it "
                  "out",
                  key, model.trained_on().origin));
}

}  // namespace

void predict_texts(Runtime& runtime, ops::Context& ctx, const InferenceModel& model,
                   const PredictArguments& given, JsonLines& json) {
  check_keys_of_texts(model, given);
  const auto [tokenizer, origin] = open_model_tokenizer(runtime.world(), model, given.tokenizer);
  const SpecialTokens special = special_tokens(*tokenizer);
  tasks::check_tokenizer(model.trained_on(), *tokenizer, origin, special.vocabulary);
  const std::int64_t context = model.model().plan.length;
  MaskFiller filler(ctx, model.stage(), special, context, given.micro_batch());
  std::optional<MaskSpeaker> speaker;
  runtime.world().read_once([&, &shared = tokenizer] {
    speaker.emplace(shared, special, json);
    return std::string();
  });
  TextBatches batches(runtime.world(), given);
  const Stopwatch watch;
  std::int64_t count = 0;
  std::string in_vain;
  for (auto texts = batches.next(filler.most()); !texts.empty() && in_vain.empty();
       texts = batches.next(filler.most())) {
    const std::vector<TextToFill> tokens = encoded(texts, *tokenizer, special, context);
    for (std::size_t begin = 0, end = 0; begin < tokens.size(); begin = end) {
      const std::span<const TextToFill> left = std::span(tokens).subspan(begin);
      end = begin + filler.most_of(left, given.top);
      const std::vector<LikelyTokens> all = filler.fill(left.first(end - begin), given.top);
      in_vain = runtime.world().read_once([&] {
        std::span<const LikelyTokens> rest = all;
        for (std::size_t i = begin; i < end; ++i) {
          speaker->say(texts[i], rest.first(tokens[i].masks.size()));
          rest = rest.subspan(tokens[i].masks.size());
        }
        return std::string(speaker->flush() ? "in vain" : "");
      });
    }
    count += std::ssize(texts);
  }
  if (count == 0) throw DataError("no texts: --input names files with a text on each line");
  runtime.world().read_once([&] {
    speaker->finish();
    return std::string();
  });
  if (runtime.rank() == 0) {
    report_line(fmt::format("{} texts in {:.1f} s, {:.1f} texts/s", count, watch.seconds(),
                            static_cast<double>(count) / watch.seconds()));
  }
}

}  // namespace trireme::cli

#include <unordered_map>

#include <fmt/format.h>
#include <sentencepiece_trainer.h>

#include "trireme/base/error.h"
#include "trireme/base/small_file.h"
#include "trireme/base/utf8.h"

#include "io/tokenizers/sentencepiece_tokenizer.h"

namespace trireme {
namespace {

constexpr std::size_t kMaxSentenceBytes = 4096;  // SentencePiece drops sentences above 4192

// Returns the runs of valid UTF-8 in the sample's lines, none longer than SentencePiece accepts.
std::vector<std::string> sentences_of(std::string_view sample) {
  std::vector<std::string> sentences;
  std::string sentence;
  const auto flush = [&] {
    if (!sentence.empty()) sentences.push_back(std::move(sentence));
    sentence.clear();
  };
  while (!sample.empty()) {
    const std::size_t length = utf8_length(sample);
    const bool ends = length == 0 || sample.front() == '\n' || sample.front() == '\0';
    if (ends || sentence.size() + length > kMaxSentenceBytes) flush();
    if (!ends) sentence += sample.substr(0, length);
    sample.remove_prefix(std::max<std::size_t>(length, 1));
  }
  flush();
  return sentences;
}

class Sentences final : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(std::vector<std::string> sentences) : sentences_(std::move(sentences)) {}
  bool done() const override { return at_ >= sentences_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return sentences_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::vector<std::string> sentences_;
  std::size_t at_ = 0;
};

}  // namespace

TokenizerPtr train_sentencepiece(std::string_view sample, const SentencePieceTraining& training) {
  if (training.vocabulary < kSmallestSentencePieceVocabulary) {
    throw ConfigError(fmt::format("a SentencePiece vocabulary of {} is too small; at least {}",
                                  training.vocabulary, kSmallestSentencePieceVocabulary));
  }
  const std::unordered_map<std::string, std::string> options = {
      {"model_type",
       training.algorithm == SentencePieceTraining::Algorithm::kBpe ? "bpe" : "unigram"},
      {"vocab_size", std::to_string(training.vocabulary)},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"byte_fallback", "true"},
      {"allow_whitespace_only_pieces", "true"},
      {"unk_id", "0"},
      {"bos_id", "-1"},
      {"eos_id", "1"},
      {"pad_id", "-1"},
      {"eos_piece", std::string(kTrainedEnd)},
      // Unigram sums its expectations thread by thread, so the number of threads affects the
      // vocabulary.
      {"num_threads", "2"},
      {"minloglevel", "3"},
  };
  Sentences sentences(sentences_of(sample));
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(options, &sentences, &model);
  if (!status.ok()) {
    const std::string words = status.error_message();
    const std::size_t most = words.find("value <= ");
    throw DataError(fmt::format(
        "cannot train a vocabulary of {} tokens on {} bytes of text; a smaller vocabulary or more "
        "text is needed ({})",
        training.vocabulary, sample.size(),
        most == std::string::npos
            ? "SentencePiece: " + words
            : "at most " + words.substr(most + 9, words.find('.', most) - most - 9)));
  }
  return std::make_shared<SentencePieceTokenizer>(
      std::move(model), SentencePieceTokenizer::Mode::kLossless, "the trained model");
}

}  // namespace trireme

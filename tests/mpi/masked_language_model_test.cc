// Which tokens of a text are hidden, what stands there instead, and the micro-batches of that.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/token_shard.h"
#include "trireme/ops/softmax_loss.h"
#include "trireme/tasks/masked_texts.h"
#include "trireme/tasks/task.h"

#include "support/message_of.h"
#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::message_of;
using testing::TemporaryFolder;
using Numbers = std::vector<std::int32_t>;
using Samples = std::vector<std::uint64_t>;

constexpr std::int32_t kEndOfText = 256;  // of the byte tokenizer, and the four that follow
constexpr std::int32_t kPad = 257, kCls = 258, kSep = 259, kMask = 260;

Samples first_samples(std::uint64_t count) {
  Samples samples(count);
  std::iota(samples.begin(), samples.end(), std::uint64_t{0});
  return samples;
}

// Words, some of whose tokens are special.
class Words final : public Tokenizer {
 public:
  Words() {
    set_vocabulary({"[UNK]", "a", "[MASK]", "b", "", "[CLS]"}, 4,
                   {{"[UNK]", 0}, {"[MASK]", 2}, {"<end>", 4}, {"[CLS]", 5}});
  }
  std::string_view kind() const override { return "words"; }
  std::string description() const override { return "words"; }
  const std::string& model() const override { return model_; }
  void add_tokens(std::string_view bytes, TextPart,
                  std::vector<std::int32_t>& tokens) const override {
    for (const char byte : bytes) {
      if (byte != ' ') tokens.push_back(byte == 'a' ? 1 : byte == 'b' ? 3 : 0);
    }
  }

 private:
  std::string model_;
};

// Letters, which are joined with a space before them.
class JoinedLetters final : public Tokenizer {
 public:
  JoinedLetters() { set_vocabulary({"a", " a", " ", ""}, 3, {{"<end>", 3}}); }
  std::string_view kind() const override { return "letters"; }
  std::string description() const override { return "letters"; }
  const std::string& model() const override { return model_; }
  void add_tokens(std::string_view bytes, TextPart,
                  std::vector<std::int32_t>& tokens) const override {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const bool space = bytes[i] == ' ', joined = space && i + 1 < bytes.size();
      tokens.push_back(joined ? 1 : space ? 2 : 0);
      i += joined ? 1 : 0;
    }
  }

 private:
  std::string model_;
};

// Rows of text: byte (i * i + sample) % 200 and so on.
Numbers rows_of_text(std::size_t samples, std::int64_t length) {
  Numbers rows;
  for (std::size_t s = 0; s < samples; ++s) {
    for (std::int64_t i = 0; i < length; ++i) {
      rows.push_back(static_cast<std::int32_t>((i * i + static_cast<std::int64_t>(s) * 7) % 200));
    }
  }
  return rows;
}

// The samples as they were before anything was hidden.
Numbers uncovered(const MaskedBatch& batch, const MaskedSize& size) {
  Numbers tokens = batch.tokens;
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets[i] < 0) continue;
    const std::size_t sample = i / static_cast<std::size_t>(size.most);
    tokens[sample * static_cast<std::size_t>(size.length) +
           static_cast<std::size_t>(batch.positions[i])] = batch.targets[i];
  }
  return tokens;
}

TEST(SpecialTokensOf, ATokenizerThatLacksThemFollowItsVocabulary) {
  const SpecialTokens special = special_tokens(*make_byte_tokenizer());
  EXPECT_EQ((Numbers{special.pad, special.cls, special.sep, special.mask, special.vocabulary}),
            (Numbers{kPad, kCls, kSep, kMask, 261}));
  EXPECT_EQ(special.name_of(kSep), "[SEP]");
  EXPECT_EQ(special.name_of('a'), "");
}

TEST(SpecialTokensOf, ATokenizerThatHasSomeAreItsOwn) {
  const SpecialTokens special = special_tokens(Words());
  EXPECT_EQ((Numbers{special.pad, special.cls, special.sep, special.mask, special.vocabulary}),
            (Numbers{6, 5, 7, 2, 8}));
  EXPECT_EQ(special.name_of(0), "[UNK]");
}

TEST(MaskedTokens, AreAShareOfThemAndAtLeastOne) {
  EXPECT_EQ(masked_tokens(126, 0.15), 19);
  EXPECT_EQ(masked_tokens(10, 0.15), 2);
  EXPECT_EQ(masked_tokens(1, 0.15), 1);
  EXPECT_EQ(masked_tokens(0, 0.15), 0);
  EXPECT_EQ(masked_tokens(7, 1.0), 7);
}

TEST(TextMasking, HidesInTheSharesOfBert) {
  const TextMasking masking(*make_byte_tokenizer(), {.length = 128, .seed = 5});
  constexpr std::size_t kSamples = 2000;
  const Numbers rows = rows_of_text(kSamples, 126);
  const MaskedBatch made = masking.batch(first_samples(kSamples), rows);
  ASSERT_EQ(masking.size().most, 19);
  std::int64_t masks = 0, others = 0, kept = 0;
  std::set<std::int32_t> replacements;
  std::vector<int> hidden_at(128);
  for (std::size_t i = 0; i < made.targets.size(); ++i) {
    ASSERT_GE(made.targets[i], 0);
    ASSERT_TRUE(i % 19 == 0 || made.positions[i] > made.positions[i - 1]);
    ++hidden_at[static_cast<std::size_t>(made.positions[i])];
    const std::int32_t now =
        made.tokens[i / 19 * 128 + static_cast<std::size_t>(made.positions[i])];
    if (now == kMask) {
      ++masks;
    } else if (now == made.targets[i]) {
      ++kept;
    } else {
      ++others;
      replacements.insert(now);
    }
  }
  // Shares may be off by four deviations of the binomial distribution; of the random tokens one in
  // 256 is equal to what stood there.
  const auto expect_share = [&](std::int64_t count, double share) {
    const auto all = static_cast<double>(made.targets.size());
    EXPECT_NEAR(static_cast<double>(count), share * all, 4 * std::sqrt(share * (1 - share) * all));
  };
  expect_share(masks, 0.8);
  expect_share(others, 0.1 * 255 / 256);
  expect_share(kept, 0.1 + 0.1 / 256);
  EXPECT_EQ(replacements.size(), 256u);
  EXPECT_EQ(*replacements.rbegin(), 255);
  for (std::size_t position = 0; position < 128; ++position) {
    const double share = position == 0 || position == 127 ? 0.0 : 19.0 / 126;
    EXPECT_NEAR(hidden_at[position], share * kSamples,
                5 * std::sqrt(share * (1 - share) * kSamples))
        << position;
  }
  const Numbers whole = uncovered(made, masking.size());
  for (std::size_t s = 0; s < kSamples; ++s) {
    const auto row = whole.begin() + static_cast<std::ptrdiff_t>(s * 128);
    ASSERT_EQ(row[0], kCls);
    ASSERT_EQ(row[127], kSep);
    ASSERT_TRUE(
        std::equal(row + 1, row + 127, rows.begin() + static_cast<std::ptrdiff_t>(s * 126)));
  }
}

TEST(TextMasking, HidesNoSpecialTokens) {
  // a, b, unknown and end of text; [PAD] and [SEP] follow the vocabulary.
  const Words words;
  const TextMasking masking(words, {.length = 12, .share = 1.0});
  Numbers rows;
  for (int i = 0; i < 500; ++i) rows.insert(rows.end(), {1, 0, 3, 4, 5, 2, 1, 3, 4, 0});
  const MaskedBatch made = masking.batch(first_samples(500), rows);
  std::set<std::int32_t> now;
  for (std::size_t i = 0; i < made.targets.size(); ++i) {
    const bool is_there = i % 10 < 4;  // of ten places
    ASSERT_EQ(made.targets[i], is_there ? Numbers({1, 3, 1, 3})[i % 10] : ops::kMaskedTarget);
    ASSERT_EQ(made.positions[i], is_there ? Numbers({1, 3, 7, 8})[i % 10] : 0);
    if (is_there)
      now.insert(made.tokens[i / 10 * 12 + static_cast<std::size_t>(made.positions[i])]);
  }
  EXPECT_EQ(now, (std::set<std::int32_t>{1, 2, 3}));
}

TEST(TextMasking, DependsOnTheSeedAndTheSampleAlone) {
  const auto tokenizer = make_byte_tokenizer();
  const auto tokens = [&](const Samples& samples, std::uint64_t seed, bool training) {
    const TextMasking masking(*tokenizer, {.length = 66, .seed = seed, .training = training});
    Numbers rows;
    for (const std::uint64_t sample : samples) {
      for (int i = 0; i < 64; ++i) rows.push_back(static_cast<std::int32_t>(sample % 100) + i);
    }
    return masking.batch(samples, rows).tokens;
  };
  const Numbers together = tokens({7, 1, 4}, 3, true);
  Numbers apart;
  for (const std::uint64_t sample : {7, 1, 4}) {
    const Numbers one = tokens({sample}, 3, true);
    apart.insert(apart.end(), one.begin(), one.end());
  }
  EXPECT_EQ(together, apart);
  EXPECT_NE(tokens({7}, 3, true), tokens({7}, 4, true));
  EXPECT_NE(tokens({7}, 3, true), tokens({7}, 3, false));
  // The same text in another pass.
  EXPECT_NE(tokens({7}, 3, true), tokens({107}, 3, true));
  EXPECT_NE(tokens({7}, 3, true), tokens({(std::uint64_t{1} << 33) * 100 + 7}, 3, true));
}

TEST(TextMasking, ADocumentsEndEndsASampleWherePromised) {
  const Numbers rows = {'a',        'b', kEndOfText, 'c', 'd', 'e',  //
                        kEndOfText, 'a', 'a',        'a', 'a', 'a',  //
                        'a',        'b', 'c',        'd', -1,  -1};
  for (const bool ends : {false, true}) {
    const TextMasking masking(*make_byte_tokenizer(),
                              {.length = 8, .share = 0.5, .ends_documents = ends});
    const MaskedBatch made = masking.batch(first_samples(3), rows);
    EXPECT_EQ(made.ends, ends ? (Numbers{4, 7, 6}) : (Numbers{8, 8, 6}));
    const Numbers whole = uncovered(made, masking.size());
    const Numbers last = {kCls, 'a', 'b', 'c', 'd', kSep, kPad, kPad};
    EXPECT_TRUE(std::equal(last.begin(), last.end(), whole.begin() + 16));
    if (!ends) continue;
    EXPECT_EQ(Numbers(whole.begin(), whole.begin() + 16),
              (Numbers{kCls, 'a', 'b', kSep, kPad, kPad, kPad, kPad,  //
                       kCls, 'a', 'a', 'a', 'a', 'a', kSep, kPad}));
    EXPECT_EQ(std::ranges::count_if(made.targets, [](std::int32_t t) { return t >= 0; }),
              1 + 3 + 2);
  }
}

TEST(TextMasking, RefusesSamplesWithoutRoomForText) {
  // bad input: masked language model: `model.context` 2 | model.context is 2: a sample is [CLS],
  // text and [SEP], so it has 3 tokens or more | 2
  EXPECT_EQ(message_of<ConfigError>([] { TextMasking(*make_byte_tokenizer(), {.length = 2}); }),
            "model.context is 2: a sample is [CLS], text and [SEP], so it has 3 tokens or more");
}

TEST(TextToFill, TakesTheLiteralMaskAsTheSpecialToken) {
  const auto bytes = make_byte_tokenizer();
  const TextToFill made = text_to_fill(*bytes, special_tokens(*bytes), "a [MASK]b[MASK]");
  EXPECT_EQ(made.tokens, (Numbers{kCls, 'a', ' ', kMask, 'b', kMask, kSep}));
  EXPECT_EQ(made.masks, (Numbers{3, 5}));
  const Words words;
  EXPECT_EQ(text_to_fill(words, special_tokens(words), "[MASK] a").tokens, (Numbers{5, 2, 1, 7}));
}

// What is predicted keeps the spaces of the text and adds those between words.
TEST(FilledText, HasAWordForEachMask) {
  const auto apart = [](std::string_view text, const std::vector<std::string>& words) {
    return filled_text(text, words, /*joined=*/false);
  };
  // Tokens of WordPiece: a space begins a word, and a token without one goes on with a word.
  EXPECT_EQ(apart("([MASK])", {" the"}), "(the)");
  EXPECT_EQ(apart("a [MASK], and \"[MASK]", {" rank", " the"}), "a rank, and \"the");
  EXPECT_EQ(apart("[MASK] a[MASK]", {" the", " b"}), "the a b");
  EXPECT_EQ(apart("7[MASK] \xc3\xa9[MASK]", {" b", " c"}), "7 b \xc3\xa9 c");
  EXPECT_EQ(apart("play[MASK]", {"ing"}), "playing");
  EXPECT_EQ(apart("[MASK][MASK].", {" play", "ing"}), "playing.");
  // Tokens of bytes: a space is a space.
  EXPECT_EQ(apart("a [MASK]b([MASK][MASK]", {" ", " ", "c"}), "a  b( c");
  EXPECT_EQ(apart("[MASK]", {" "}), " ");

  // Where a space is part of the token behind it, the one before a mask is masked, too.
  const auto joined = [](std::string_view text, const std::vector<std::string>& words) {
    return filled_text(text, words, /*joined=*/true);
  };
  EXPECT_EQ(joined("a [MASK] c", {" b"}), "a b c");
  EXPECT_EQ(joined("a [MASK] c", {"b"}), "ab c");
  EXPECT_EQ(joined("a [MASK]c", {" "}), "a c");
  EXPECT_EQ(joined("a[MASK] ([MASK]", {" b", " c"}), "a b ( c");
  EXPECT_EQ(joined("[MASK] c", {" b"}), "b c");
}

TEST(TextToFill, HidesTheSpaceThatIsPartOfAToken) {
  EXPECT_FALSE(joins_spaces(*make_byte_tokenizer()));
  EXPECT_FALSE(joins_spaces(Words()));
  const JoinedLetters letters;
  EXPECT_TRUE(joins_spaces(letters));
  const SpecialTokens special = special_tokens(letters);
  const auto tokens = [&](const char* text) { return text_to_fill(letters, special, text).tokens; };
  const Numbers hidden = {special.cls, 0, special.mask, 1, special.sep};
  EXPECT_EQ(tokens("a [MASK] a"), hidden);
  EXPECT_EQ(tokens("a[MASK] a"), hidden);
  // At the end of a text it is a token like others.
  EXPECT_EQ(tokens("[MASK] "), (Numbers{special.cls, special.mask, 2, special.sep}));
}

class MaskedMicroBatches : public ::testing::Test {
 protected:
  Numbers field(const nn::MicroBatch& batch, std::string_view name) {
    const Tensor tensor = batch.field(name);
    if (!tensor.defined()) return {};
    const auto values = tensor.span<std::int32_t>();
    return {values.begin(), values.end()};
  }
  ops::Context ctx_ = ops::make_cpu_context(1);
};

TEST_F(MaskedMicroBatches, HaveTheRowsOfTheTargets) {
  const TextMasking masking(*make_byte_tokenizer(), {.length = 6, .share = 0.5});
  const Numbers rows = {'a', 'b', 'c', 'd', 'a', 'b', 'c', 'd', 'a', 'b', -1, -1};
  const MaskedBatch data = masking.batch(Samples{10, 11, 12}, rows);
  const nn::MicroBatch whole = make_micro_batch(ctx_, data, masking.size(), 0, 2, true);
  EXPECT_EQ(whole.length, 6);
  EXPECT_EQ(whole.target_count, 4);
  EXPECT_FALSE(whole.field(nn::kKeyEnd).defined());
  const Numbers at = field(whole, nn::kTargetRows);
  EXPECT_EQ(at, (Numbers{data.positions[0], data.positions[1], 6 + data.positions[2],
                         6 + data.positions[3]}));

  // A shorter sample, and one that only fills the micro-batch up.
  const nn::MicroBatch rest = make_micro_batch(ctx_, data, masking.size(), 2, 2, true);
  EXPECT_EQ(rest.target_count, 1);
  EXPECT_EQ(field(rest, nn::kKeyEnd), (Numbers{4, 4, 4, 4, 4, 4, 6, 6, 6, 6, 6, 6}));
  EXPECT_EQ(field(rest, nn::kTargetRows), (Numbers{data.positions[4], 0, 6, 6}));
  EXPECT_EQ(field(rest, nn::kTargets),
            (Numbers{data.targets[4], ops::kMaskedTarget, ops::kMaskedTarget, ops::kMaskedTarget}));
  const Numbers tokens = field(rest, nn::kTokens);
  EXPECT_EQ(Numbers(tokens.begin() + 4, tokens.end()), Numbers(8, kPad));
  EXPECT_EQ(rest.samples.data<std::int64_t>()[0], 12);
}

TEST_F(MaskedMicroBatches, HaveTheSameFieldsWhereSamplesMayBePadded) {
  const TextMasking masking(*make_byte_tokenizer(), {.length = 6, .ends_documents = true});
  const MaskedBatch data = masking.batch(Samples{0}, Numbers{'a', 'b', 'c', 'd'});
  EXPECT_EQ(field(make_micro_batch(ctx_, data, masking.size(), 0, 1, true), nn::kKeyEnd),
            Numbers(6, 6));
}

// The task on a shard: three documents.
class MaskedData : public MaskedMicroBatches {
 protected:
  MaskedData() {
    for (int i = 0; i < 203; ++i) text_.push_back(i % 60 == 59 ? kEndOfText : 'a' + i * i % 26);
    TokenShardWriter writer(path(), make_byte_tokenizer(), "train", "made up");
    writer.append(text_, std::vector<std::uint64_t>{0, 60, 120, 180}, 200);
    writer.commit();
  }
  std::string path() const { return (folder_.path() / "train.h5").string(); }
  const tasks::Task& task() const { return tasks::find_task("masked_language_model"); }
  tasks::DataRequest request(bool training) const {
    tasks::DataRequest wanted{
        .paths = {{path()}}, .training = training, .any_split = true, .sample = {12}, .seed = 3};
    return wanted;
  }
  // The field of samples [0, count), read so many at a time.
  Numbers read(bool training, std::uint64_t count, std::int64_t micro, std::string_view name,
               std::uint64_t steps = 1) {
    const auto data = task().open(request(training), testing::runtime().world());
    const auto reader = data->read_steps(
        [=](std::uint64_t step) -> std::optional<Samples> {
          if (step >= steps) return std::nullopt;
          Samples wanted(count / steps);
          std::iota(wanted.begin(), wanted.end(), step * (count / steps));
          return wanted;
        },
        micro, {.training = training});
    Numbers all;
    for (std::uint64_t step = 0; step < steps; ++step) {
      reader->read();
      for (const nn::MicroBatch& batch : reader->micro_batches(ctx_)) {
        const Numbers more = field(batch, name);
        all.insert(all.end(), more.begin(), more.end());
      }
    }
    return all;
  }

  TemporaryFolder folder_;
  Numbers text_;
};

TEST_F(MaskedData, AreTheSameHoweverTheyAreCut) {
  for (const bool training : {true, false}) {
    const std::uint64_t count = training ? 20 : 21;
    for (const std::string_view name : {nn::kTokens, nn::kTargets}) {
      const Numbers whole = read(training, count, static_cast<std::int64_t>(count), name);
      EXPECT_EQ(read(training, count, 1, name), whole) << name;
      EXPECT_EQ(read(training, count, training ? 5 : 7, name, training ? 2 : 1), whole) << name;
    }
  }
}

TEST_F(MaskedData, OfAnEvaluationAreAllTokensInOrder) {
  const auto data = task().open(request(false), testing::runtime().world());
  ASSERT_EQ(data->samples(), 21u);
  EXPECT_EQ(*data->facts().vocabulary, 261);
  EXPECT_EQ(data->description(), "203 tokens, vocabulary 261");
  Numbers tokens = read(false, 21, 21, nn::kTokens);
  const Numbers rows = read(false, 21, 21, nn::kTargetRows),
                targets = read(false, 21, 21, nn::kTargets);
  int masks = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (targets[i] < 0) continue;
    EXPECT_NE(targets[i], kEndOfText);
    masks += tokens[static_cast<std::size_t>(rows[i])] == kMask ? 1 : 0;
    tokens[static_cast<std::size_t>(rows[i])] = targets[i];
  }
  EXPECT_GT(masks, 21);
  std::erase_if(tokens, [](std::int32_t token) { return token > kEndOfText; });
  EXPECT_EQ(tokens, text_);
  EXPECT_EQ(read(false, 21, 21, nn::kTargets), targets);
}

TEST_F(MaskedData, ShareATokenizer) {
  tasks::DataRequest wanted = request(true);
  const auto train = task().open(wanted, testing::runtime().world());
  wanted.training = false;
  wanted.tokenizer = train->tokenizer();
  ASSERT_TRUE(wanted.tokenizer);
  EXPECT_EQ(task().open(wanted, testing::runtime().world())->tokenizer(), train->tokenizer());
}

TEST_F(MaskedData, OfAnotherPassAreMaskedElsewhere) {
  // 20 samples are a pass: the texts of both passes are the same.
  const auto seen = [&](const Numbers& rows) {
    std::multiset<Numbers> samples;
    for (std::size_t i = 0; i < 20; ++i) {
      samples.insert(Numbers(rows.begin() + static_cast<std::ptrdiff_t>(i * 12),
                             rows.begin() + static_cast<std::ptrdiff_t>(i * 12 + 12)));
    }
    return samples;
  };
  Numbers tokens = read(true, 40, 20, nn::kTokens);
  EXPECT_EQ(read(true, 40, 20, nn::kTokens), tokens);
  const Numbers first(tokens.begin(), tokens.begin() + 240),
      second(tokens.begin() + 240, tokens.end());
  EXPECT_NE(seen(first), seen(second));
  // Samples are the same once what is hidden is put back.
  const Numbers rows = read(true, 40, 20, nn::kTargetRows),
                targets = read(true, 40, 20, nn::kTargets);
  const std::size_t of_pass = rows.size() / 2;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (targets[i] < 0) continue;
    tokens[(i < of_pass ? 0 : 240) + static_cast<std::size_t>(rows[i])] = targets[i];
  }
  EXPECT_EQ(seen(Numbers(tokens.begin(), tokens.begin() + 240)),
            seen(Numbers(tokens.begin() + 240, tokens.end())));
}

TEST_F(MaskedData, TellOfMaskedTokens) {
  const auto data = task().open(request(false), testing::runtime().world());
  const nn::EvaluationSums sums{.loss_sum = std::log(8.0) * 42, .targets = 42};
  EXPECT_EQ(task().measures(sums), "loss 2.0794 over 42 masked tokens, perplexity 8.00");
  const std::vector<tasks::Measure> figures = data->figures(sums);
  ASSERT_EQ(figures.size(), 3u);
  EXPECT_EQ(figures[1].value, "8.0000");
  EXPECT_EQ(figures[2].value, "42, of 203, in windows of 10");
  EXPECT_EQ(task().unit().rate(), "tokens/s");
  EXPECT_EQ(*task().facts_on_this_host({{path()}}).vocabulary, 261);
}

}  // namespace
}  // namespace trireme

// `trireme predict` and what a checkpoint says of the data that its model was trained on; and how
// many texts are filled at once.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/config/config.h"
#include "trireme/inference/mask_filler.h"
#include "trireme/io/token_shard.h"
#include "trireme/setup/checkpoint_tensors.h"
#include "trireme/tasks/masked_texts.h"
#include "trireme/tasks/pictures.h"
#include "trireme/tasks/texts.h"

#include "cli/commands.h"
#include "models/bert/bert.h"
#include "models/vit/vit.h"
#include "support/message_of.h"
#include "support/mpi_test.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

using Marks = std::map<std::string, std::string>;

// A fresh model in a checkpoint that says `marks` of its data.
class PredictMarks : public ::testing::Test {
 protected:
  PredictMarks() {
    if (runtime().rank() == 0) made_.emplace();
    folder_ = runtime().world().broadcast_text(made_ ? made_->path().string() : "");
  }
  ~PredictMarks() override { runtime().world().barrier().wait_host(); }

  std::string write(const models::Model& model, const Marks& marks) {
    const ProcessGrid grid(runtime(), {1, runtime().size(), 1});
    const parallel::Stage stage(ctx_, grid, model.plan, {.trains = false, .seed = 5});
    Config config;
    config.model = model.request;
    return write_checkpoint(runtime().world(), runtime().recorder(), folder_,
                            {.step = ++step_, .config = config_to_ini(config), .extra = marks},
                            checkpoint_slices(stage, nullptr, true));
  }

  // What the command says instead of predicting; "CHECKPOINT" stands for the name of the file.
  template <class Refusal>
  std::string said(const models::Model& model, const Marks& marks, cli::Arguments more) {
    const std::string path = write(model, marks);
    cli::Arguments all = {"--checkpoint", path, "--device", "cpu", "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    std::string message = message_of<Refusal>([&] { cli::parse_predict(all).on_ranks(runtime()); });
    for (std::size_t at; (at = message.find(path)) != std::string::npos;) {
      message.replace(at, path.size(), "CHECKPOINT");
    }
    return message;
  }

  ops::Context ctx_ = ops::make_cpu_context(1);
  std::optional<TemporaryFolder> made_;
  std::string folder_;
  int step_ = 0;
};

TEST_F(PredictMarks, OfPicturesThatAreNoneAreRefused) {
  const models::Model model = models::vit_model(
      {.layers = 2, .width = 8, .heads = 2, .hidden = 8, .patch = 4, .image = 8, .classes = 3});
  const std::string good = "mean 0.5 0.5 0.5, deviation 0.2 0.2 0.2";
  const auto refused = [&](const Marks& marks) {
    return said<CheckpointError>(model, marks, {"--input", "none.png"});
  };
  // bad input: `predict`: a checkpoint whose size of pictures is none | CHECKPOINT: its
  // picture_size is '8 by 8'; expected HEIGHTxWIDTH, as in 24x32 | 4
  for (const char* size : {"8 by 8", "8x", "x8", "8x8x8", "-8x8", "8x99999999999999999999"}) {
    EXPECT_EQ(refused({{kPictureSizeAttribute, size}, {kNormalisationAttribute, good}}),
              "CHECKPOINT: its picture_size is '" + std::string(size) +
                  "'; expected HEIGHTxWIDTH, as in 24x32");
  }
  // bad input: `predict`: a checkpoint whose normalisation is none | CHECKPOINT: its normalisation
  // is 'mean 1 2'; expected 'mean R G B, deviation R G B', numbers of 0 to 1 | 4
  for (const std::string& text : {std::string("mean 1 2"), good + " 0.2", good.substr(5),
                                  std::string("mean 2 0 0, deviation 1 1 1")}) {
    EXPECT_EQ(refused({{kPictureSizeAttribute, "8x8"}, {kNormalisationAttribute, text}}),
              "CHECKPOINT: its normalisation is '" + text + "'; expected " +
                  std::string(kNormalisationForm));
  }
  // Good ones get as far as the pictures.
  EXPECT_NE(
      said<DataError>(model, {{kPictureSizeAttribute, "8x8"}, {kNormalisationAttribute, good}},
                      {"--input", "none.png"})
          .find("none.png: cannot be read"),
      std::string::npos);
}

TEST_F(PredictMarks, OfTextsThatAreNoneAreAnotherTokenizer) {
  const TokenizerPtr bytes = make_byte_tokenizer();
  const std::string shard = folder_ + "/train.h5";
  if (runtime().rank() == 0) {
    TokenShardWriter writer(shard, bytes, "train", "made up");
    writer.append(std::vector<std::int32_t>(40, 'a'), std::vector<std::uint64_t>{0}, 40);
    writer.commit();
  }
  runtime().world().barrier().wait_host();
  const auto with = [&](std::int64_t vocabulary, const std::string& mark) {
    const models::Model model = models::bert_model(
        {.layers = 2, .width = 8, .heads = 2, .hidden = 8, .vocabulary = vocabulary, .context = 8});
    return said<DataError>(model, {{kTokenizerAttribute, mark}},
                           {"--text", "a[MASK]", "--tokenizer", shard});
  };
  // bad input: `predict`: a shard whose tokenizer is not the one that the checkpoint tells of |
  // SHARD has another tokenizer than the model of CHECKPOINT, though as many tokens: use data of
  // the tokenizer that the model was trained with | 3
  const std::string right = tokenizer_checksum(*bytes), cut = right.substr(0, right.size() - 1);
  for (const std::string& mark :
       {std::string("xxh64:0123456789abcdef"), std::string("no checksum"), cut}) {
    EXPECT_EQ(with(261, mark),
              shard +
                  " has another tokenizer than the model of CHECKPOINT, though as many tokens: "
                  "use data of the tokenizer that the model was trained with");
  }
  EXPECT_EQ(with(300, right), shard +
                                  " has a vocabulary of 261 tokens with the special ones that it "
                                  "lacks, the model of CHECKPOINT one of 300: use data of the "
                                  "tokenizer that the model was trained with");
  EXPECT_EQ(with(261, right), "no error");
}

TEST(TextsAtOnce, HaveNoMoreLikelyTokensThanFit) {
  const auto texts = [](std::vector<std::size_t> masks) {
    std::vector<TextToFill> all;
    for (const std::size_t count : masks) all.push_back({{}, std::vector<std::int32_t>(count)});
    return all;
  };
  constexpr std::size_t kFit = (std::size_t{16} << 20) / 12;  // of 12 bytes in 16 MiB
  EXPECT_EQ(texts_at_once(texts({1, 2, 3}), 1, 5), 3u);
  EXPECT_EQ(texts_at_once(texts({1, 1, 1}), 1, kFit / 2), 2u);
  EXPECT_EQ(texts_at_once(texts({1, 1, 1}), 1, kFit / 3), 3u);
  // Each takes the room of the one with the most masks.
  EXPECT_EQ(texts_at_once(texts({1, 1, 4}), 1, kFit / 6), 2u);
  EXPECT_EQ(texts_at_once(texts({4, 1, 1}), 1, kFit / 6), 1u);
  // So do the replicas that have one text fewer.
  EXPECT_EQ(texts_at_once(texts({1, 1, 1}), 2, kFit / 3), 2u);
  EXPECT_EQ(texts_at_once(texts({1, 1, 1}), 2, kFit / 4), 3u);
  // One is filled whatever it needs.
  EXPECT_EQ(texts_at_once(texts({3, 1}), 4, std::size_t{1} << 24), 1u);
}

}  // namespace
}  // namespace trireme::testing

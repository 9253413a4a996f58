// Ranks that prepare a corpus together write what one process writes, byte for byte.
#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/json.h"
#include "trireme/io/prepare.h"
#include "trireme/io/together.h"

#include "support/message_of.h"
#include "support/mpi_test.h"
#include "support/prepare_testing.h"
#include "support/sample_pictures.h"
#include "support/sample_text.h"
#include "support/temporary_folder.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

// Lines with bytes of all kinds, with separators, and a line of JSON that is broken.
std::string separated_text() {
  std::string text;
  for (unsigned i = 0; i < 60; ++i) {
    text += sample_text(50 + i * 7, i) + (i % 5 == 0 ? "\n\n\n\n" : "\n\n");
    if (i % 9 == 0) text += std::string("\xff\xfe caf\xc3\xa9\r\n\t") + std::string(i, '\n');
  }
  return text;
}

std::string json_lines(unsigned documents, bool good) {
  std::string lines;
  for (unsigned i = 0; i < documents; ++i) {
    const std::string text = i % 13 == 5 ? "" : sample_text(20 + i * 11 % 300, i);
    lines += Json::object({{"id", static_cast<int>(i)}, {"text", text}}).dump() + "\n";
    if (i % 11 == 3) lines += "\n \n";
    if (!good && i % 17 == 12) lines += "{\"text\": broken\n";
  }
  lines.pop_back();
  return lines;
}

std::string table(unsigned documents) {
  std::string rows = "id,text\n";
  for (unsigned i = 0; i < documents; ++i) {
    rows += fmt::format("{},\"{}\nsaid \"\"{}\"\"\"\n", i, sample_text(40, i), i);
  }
  return rows;
}

// nanoGPT's numbers: documents of different lengths that begin with 7 or not, and end with 9.
std::string tokens(unsigned file) {
  std::string bytes;
  for (unsigned i = 0; i < 300 + 400 * file; ++i) {
    const unsigned token = i % (17 + file) == 0   ? 9
                           : i % (17 + file) == 1 ? 7 - i % 2
                                                  : 10 + i % 90;
    bytes += {static_cast<char>(token), '\0'};
  }
  return bytes;
}

class PrepareRanks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (rank() == 0) {
      scratch_.emplace();
      write_corpus();
    }
    folder_ = world().broadcast_text(scratch_ ? scratch_->path().string() : "");
  }
  void TearDown() override { world().barrier().wait_host(); }

  static Communicator& world() { return runtime().world(); }
  static int rank() { return runtime().rank(); }

  void write(const std::string& name, const std::string& bytes) const {
    const fs::path path = scratch_->path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
  }
  void write_corpus() const {
    const std::string good = json_lines(90, true);
    write("plain/a.txt", sample_text(9000, 1));
    write("plain/b.txt", "");
    write("plain/c.txt", separated_text());
    write("plain/d.txt", std::string(5000, 'x') + "\n" + std::string(3000, 'y'));
    write("all/a.txt", sample_text(5000, 2));
    write("all/b.jsonl", json_lines(150, false));
    write("all/c.jsonl.gz", compressed(good, "gzip"));
    write("all/d.csv", table(40));
    write("all/e.parquet", contents(fmt::format("{}/snappy.parquet", TRIREME_PARQUET)));
    write("all/f.tar",
          make_tar({{"x/a.txt", sample_text(900, 5)}, {"x/.b", "hidden"}, {"c.jsonl", good}}));
    write("all/g.txt", "\xef\xbb\xbf" + sample_text(3000, 6));
    write("all/h.bin", std::string("\0\1\2", 3));
    for (unsigned file = 0; file < 5; ++file)
      write(fmt::format("tokens/{}.bin", file), tokens(file));
    write("tokens/page.txt", "no tokens");
  }

  PrepareOptions options(const std::string& inputs) const {
    PrepareOptions options;
    options.inputs = {folder_ + "/" + inputs};
    options.tokenizer = parse_tokenizer_choice("byte");
    options.skip_bad = inputs == "all";
    options.portion_bytes = 700;
    return options;
  }

  // Not every seed holds some of few documents out, and not all.
  std::uint64_t seed_that_divides(PrepareOptions options) const {
    options.output = folder_ + "/tried";
    return std::stoull(world().read_once([&] {
      for (options.seed = 1;; ++options.seed) {
        try {
          prepare(options);
          return std::to_string(options.seed);
        } catch (const DataError&) {
        }
      }
    }));
  }

  // The files of a folder, and what is in them.
  static std::map<std::string, std::string> files_in(const std::string& folder) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(folder)) {
      files[entry.path().filename().string()] = contents(entry.path().string());
    }
    return files;
  }

  // Prepares alone and together, and compares.
  void expect_same(PrepareOptions options) {
    SCOPED_TRACE(fmt::format("rank {}", rank()));
    std::optional<PrepareResult> alone;
    options.output = folder_ + "/alone";
    if (rank() == 0) alone = prepare(options);
    options.output = folder_ + "/together";
    options.threads = 1 + rank() % 2;
    std::string fault;
    try {
      const PrepareResult together = prepare(options, &world());
      if (rank() == 0) expect_same_words(*alone, together);
    } catch (const std::exception& error) {
      fault = error.what();
    }
    EXPECT_EQ(fault, "");
    if (rank() == 0) {
      const auto expected = files_in(folder_ + "/alone"), got = files_in(folder_ + "/together");
      EXPECT_EQ(expected.size(), got.size());
      for (const auto& [name, bytes] : expected) {
        EXPECT_TRUE(got.contains(name) && got.at(name) == bytes) << name;
      }
      EXPECT_TRUE(expected.contains("train.h5") || options.shards > 1);
    }
    world().barrier().wait_host();
  }

  static void expect_same_words(const PrepareResult& alone, const PrepareResult& together) {
    EXPECT_EQ(alone.bad_records.count, together.bad_records.count);
    EXPECT_EQ(alone.bad_records.first, together.bad_records.first);
    EXPECT_EQ(words_of(alone.left_out), words_of(together.left_out));
    EXPECT_EQ(alone.zero_bytes.count, together.zero_bytes.count);
    EXPECT_EQ(alone.zero_bytes.first, together.zero_bytes.first);
    EXPECT_EQ(alone.without_begin, together.without_begin);
    EXPECT_EQ(alone.train.documents, together.train.documents);
    EXPECT_EQ(alone.train_paths.size(), together.train_paths.size());
  }

  std::optional<TemporaryFolder> scratch_;  // rank 0's
  std::string folder_;                      // the same, on all ranks
};

TEST_F(PrepareRanks, EachFormatGivesTheSameBytes) {
  PrepareOptions all = options("all");
  expect_same(all);
  all.tokenizer = parse_tokenizer_choice("bpe:350");
  all.validation = parse_validation_split("hash:0.2");
  all.shards = 3;
  expect_same(all);
  all.tokenizer = parse_tokenizer_choice(fmt::format("{}/llama3.json", TRIREME_TOKENIZERS));
  all.shards = 1;
  expect_same(all);
  all.as_bytes = true;
  all.skip_bad = false;
  all.tokenizer = parse_tokenizer_choice("byte");
  expect_same(all);
}

TEST_F(PrepareRanks, PartsOfTextsGiveTheSameBytes) {
  for (const char* tokenizer : {"byte", "bpe:330", "gpt2.json", "qwen2.json"}) {
    const bool is_file = std::string(tokenizer).ends_with(".json");
    for (const char* separator : {"", "\n\n", "\n\n\n"}) {
      PrepareOptions plain = options("plain");
      plain.tokenizer = parse_tokenizer_choice(
          is_file ? fmt::format("{}/{}", TRIREME_TOKENIZERS, tokenizer) : tokenizer);
      plain.document_separator = separator;
      plain.portion_bytes = *separator == '\0' ? 1500 : 300;
      plain.validation = parse_validation_split("hash:0.4");
      plain.seed = seed_that_divides(plain);
      expect_same(plain);
    }
  }
}

// Tails that begin with a document, in the middle of one in any part of a file, or in another file.
TEST_F(PrepareRanks, TailsGiveTheSameBytes) {
  for (const int tail : {3, 2999, 3001, 8003, 12000, 30000}) {
    for (const char* separator : {"", "\n\n"}) {
      PrepareOptions plain = options("plain");
      plain.document_separator = separator;
      plain.validation = parse_validation_split(fmt::format("tail:{}", tail));
      plain.shards = *separator == '\0' ? 1 : 2;
      expect_same(plain);
    }
  }
  PrepareOptions all = options("all");
  all.validation = parse_validation_split("tail:9000");
  all.shards = 2;
  expect_same(all);
}

TEST_F(PrepareRanks, ALimitAndFewPortionsGiveTheSameBytes) {
  PrepareOptions all = options("all");
  all.input_limit = 12345;
  expect_same(all);
  all.input_limit = 0;
  all.portion_bytes = 0;  // each file is one
  expect_same(all);
}

TEST_F(PrepareRanks, TokensGiveTheSameBytes) {
  PrepareOptions made = options("tokens");
  made.tokens = true;
  made.tokenizer = parse_numbers_choice(100, {.begin_of_text = "7", .end_of_text = "9"});
  for (const char* validation : {"none", "hash:0.3", "tail:500"}) {
    made.validation = parse_validation_split(validation);
    for (const int shards : {1, 3}) {
      made.shards = shards;
      expect_same(made);
    }
  }
  made.inputs = {folder_ + "/tokens/0.bin"};  // fewer files than ranks
  made.validation = {};
  made.shards = 1;
  expect_same(made);
}

// A fault of any rank is one of all, and nothing is left.
TEST_F(PrepareRanks, AFaultIsOneOfAll) {
  PrepareOptions all = options("all");
  all.output = folder_ + "/out";
  all.skip_bad = false;
  const std::string what = message_of<DataError>([&] { prepare(all, &world()); });
  // The line is that of the file, whatever part it is in.
  EXPECT_NE(what.find("b.jsonl: line "), std::string::npos) << what;
  world().barrier().wait_host();
  if (rank() == 0) {
    EXPECT_FALSE(fs::exists(all.output));
    const std::string alone = message_of<DataError>([&] { prepare(all); });
    EXPECT_NE(alone.find("b.jsonl: line "), std::string::npos) << alone;
  }
  world().barrier().wait_host();
  // bad input: `prepare --shards`: more shards than documents fill | --shards 3: 1 document, too
  // few or too long: ... | 3
  PrepareOptions one = options("plain/a.txt");
  one.output = folder_ + "/out";
  one.shards = 3;
  EXPECT_NE(message_of<DataError>([&] { prepare(one, &world()); }).find("--shards 3"),
            std::string::npos);
  world().barrier().wait_host();
  if (rank() == 0) {
    EXPECT_FALSE(fs::exists(one.output));
  }
}

}  // namespace
}  // namespace trireme::testing

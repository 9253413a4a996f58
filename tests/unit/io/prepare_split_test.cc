// Which documents, or parts of them, are held out for validation.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/prepare_testing.h"
#include "support/sample_text.h"

namespace trireme {
namespace {

using testing::documents;
using testing::Prepare;
using testing::Texts;

TEST_F(Prepare, HashSplitDrawsDocumentsByContentAndSeed) {
  std::string text;
  Texts all;
  for (int i = 0; i < 2000; ++i)
    text += (all.emplace_back(fmt::format("document {}", i)), all.back() + "\n");
  PrepareOptions options = this->options({write("a.txt", text)});
  options.document_separator = "\n";
  options.validation = parse_validation_split("hash:0.1");
  const PrepareResult first = prepare(options);
  Texts train = documents(first.train), held = documents(*first.validation);
  EXPECT_NEAR(static_cast<double>(held.size()), 200, 60);  // 4.5 standard deviations
  EXPECT_EQ(first.validation->split, "validation");

  // The same documents whatever their order; other ones with another seed.
  std::string reversed;
  for (auto text_of = all.rbegin(); text_of != all.rend(); ++text_of) reversed += *text_of + "\n";
  options.inputs = {write("b.txt", reversed)};
  Texts again = documents(*prepare(options).validation);
  std::reverse(again.begin(), again.end());
  EXPECT_EQ(again, held);
  options.seed = 2;
  Texts other = documents(*prepare(options).validation);
  std::reverse(other.begin(), other.end());
  EXPECT_NE(other, held);

  Texts both = train;
  both.insert(both.end(), held.begin(), held.end());
  std::sort(both.begin(), both.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(both, all);
}

TEST_F(Prepare, HashSplitKeepsLongDocumentsWhole) {
  std::string text;
  for (unsigned i = 0; i < 12; ++i) text += testing::sample_text(200000 + 100000 * i, i) + "\x01";
  PrepareOptions options = this->options({write("a.txt", text)});
  options.document_separator = "\x01";
  options.validation = parse_validation_split("hash:0.4");
  const PrepareResult result = prepare(options);
  Texts both = documents(result.train);
  EXPECT_EQ(both.size(), static_cast<std::size_t>(12 - result.validation->documents));
  for (const std::string& document : documents(*result.validation)) both.push_back(document);
  for (unsigned i = 0; i < 12; ++i) {
    const std::string document = testing::sample_text(200000 + 100000 * i, i);
    EXPECT_EQ(std::count(both.begin(), both.end(), document), 1) << i;
  }
}

std::uint64_t bytes_of(const std::vector<std::string>& texts) {
  std::uint64_t bytes = 0;
  for (const std::string& text : texts) bytes += text.size();
  return bytes;
}

TEST_F(Prepare, TailBeginsAtADocumentInItsFirstHalfElseExactly) {
  const auto split = [&](const std::string& text, const std::string& tail) {
    PrepareOptions options = this->options({write("a.txt", text)});
    options.document_separator = "|";
    options.validation = parse_validation_split("tail:" + tail);
    const PrepareResult result = prepare(options);
    EXPECT_EQ(result.train.original_bytes,
              static_cast<std::int64_t>(bytes_of(documents(result.train))));
    return std::pair(documents(result.train), documents(*result.validation));
  };
  EXPECT_EQ(split("aaaaaaaa|bbbb|cccccc", "8"),
            (std::pair(Texts{"aaaaaaaa", "bbbb"}, Texts{"cccccc"})));
  EXPECT_EQ(split("aaaaaaaa|bbbb|cccccc", "10"),  // a document starts right there
            (std::pair(Texts{"aaaaaaaa"}, Texts{"bbbb", "cccccc"})));
  EXPECT_EQ(split("aaaaaaaaa|bbbb|c", "11"),  // the nearest start is too late for half of it
            (std::pair(Texts{"aaa"}, Texts{"aaaaaa", "bbbb", "c"})));
  EXPECT_EQ(split("abcdefgh", "3"), (std::pair(Texts{"abcde"}, Texts{"fgh"})));
  EXPECT_EQ(split("abcdefgh|", "1"), (std::pair(Texts{"abcdefg"}, Texts{"h"})));
}

TEST_F(Prepare, TailOfALongDocumentIsExact) {
  const std::string text = testing::sample_text(5000000, 4);
  for (const char* tail : {"1", "1048576", "1048577", "2097152", "3000001", "4999999"}) {
    PrepareOptions options = this->options({write("a.txt", text)});
    options.validation = parse_validation_split(fmt::format("tail:{}", tail));
    const PrepareResult result = prepare(options);
    const std::size_t cut = text.size() - std::strtoull(tail, nullptr, 10);
    EXPECT_TRUE(documents(result.train) == Texts{text.substr(0, cut)}) << tail;
    EXPECT_TRUE(documents(*result.validation) == Texts{text.substr(cut)}) << tail;
  }
}

}  // namespace
}  // namespace trireme

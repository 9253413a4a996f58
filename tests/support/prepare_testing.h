// Texts that `trireme prepare` reads, and what it has made of them, for tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/prepare.h"

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme::testing {

using Texts = std::vector<std::string>;

class Prepare : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  std::string output(const std::string& name = "out") const {
    return (folder_.path() / name).string();
  }
  PrepareOptions options(const std::vector<std::string>& inputs) const {
    PrepareOptions options;
    options.inputs = inputs;
    options.output = output();
    return options;
  }

  TemporaryFolder folder_;
};

// The documents of a shard as text, by /documents.
inline std::vector<std::string> documents(const TokenShardInfo& info) {
  verify_token_shard(info.path);
  const hdf5::File file = hdf5::File::open(info.path);
  std::vector<std::int32_t> tokens;
  if (info.token_bytes == 2) {
    const auto raw = file.dataset("/tokens").read<std::uint16_t>();
    tokens.assign(raw.begin(), raw.end());
  } else {
    const auto raw = file.dataset("/tokens").read<std::uint32_t>();
    tokens.assign(raw.begin(), raw.end());
  }
  const auto starts = file.dataset("/documents").read<std::uint64_t>();
  const TokenizerPtr tokenizer = make_tokenizer(info.tokenizer_kind, info.tokenizer_model);
  std::vector<std::string> texts;
  for (std::size_t d = 0; d < starts.size(); ++d) {
    const std::uint64_t end = d + 1 < starts.size() ? starts[d + 1] : tokens.size();
    EXPECT_EQ(tokens[end - 1], tokenizer->end_of_text());
    texts.push_back(tokenizer->decode(std::span(tokens).subspan(starts[d], end - 1 - starts[d])));
  }
  return texts;
}

inline std::string contents(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// What bad input gets: the class of the error, and a line that names the culprit.
template <class Fault>
void expect_fault(const PrepareOptions& options, const std::string& words) {
  const std::string what = message_of<Fault>([&] { prepare(options); });
  EXPECT_NE(what.find(words), std::string::npos) << what << ", expected: " << words;
  EXPECT_EQ(what.find('\n'), std::string::npos) << what;
}

}  // namespace trireme::testing

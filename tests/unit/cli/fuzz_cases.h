// Inputs that nobody should give to the program, made from a seed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::fuzz {

struct Case {
  std::string kind;                    // a name of kinds()
  std::vector<std::string> arguments;  // of the program
  std::map<std::string, std::string> environment = {};
  std::vector<std::pair<std::string, std::string>> files = {};  // name, bytes
  // Run in the case's folder before the program, for files that take a library to write.
  std::function<void()> before = {};
};

// Draws that are the same with every library.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : engine_(seed) {}

  std::size_t below(std::size_t count) { return engine_() % count; }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <class Container>
  const auto& any_of(const Container& all) {
    return all[below(all.size())];
  }

 private:
  std::mt19937_64 engine_;
};

// What every case finds beside its own folder, in ../given: the text `text.txt`, the shards
// `data/train.h5` and `data/validation.h5`, the pictures below `pets` and the shard of them
// `images/train.h5`, the tokenizers `bpe.model`, `pairs.json` and `words.json`, and the folder
// `run` of a run of two steps, with checkpoints/step-00000002.h5. Cases are made where the same
// path leads there.

// "flags", "ini", ...
std::vector<std::string> kinds();
// The case of a kind that these draws make.
Case make_case(const std::string& kind, Draws& draws);

// The tokenizer in a shard, as a file.
void write_stored_tokenizer(const std::string& shard, const std::string& model);

// Inputs that once failed: a line each, words in a shell's single quotes where they need any.
std::vector<Case> corpus();

}  // namespace trireme::fuzz

// Feeds the program what nobody should give it, case by case in processes of their own.
//
//     fuzz_test [--cases N] [--seconds N] [--seed S] [--kind KIND] [--case I]
//
// A case follows from the seed, its kind and its number alone. Whatever the input, the program must
// end by itself with a documented status, never 70, and say why in one line on standard error,
// which begins with "trireme: ", has a bounded length and holds no control characters. The files of
// a case that fails stay in /tmp/fuzz-KIND-NUMBER; when it is mended, its input joins
// fuzz_corpus.cc.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "trireme/base/philox.h"
#include "trireme/base/printable.h"

#include "cli/program.h"
#include "fuzz_cases.h"
#include "support/sample_pictures.h"
#include "support/sandbox.h"
#include "support/temporary_folder.h"

namespace trireme::fuzz {
namespace {

namespace fs = std::filesystem;
using testing::run_in_sandbox;
using testing::SandboxResult;

#if defined(__SANITIZE_ADDRESS__)
constexpr int kMostSeconds = 100;  // of processor time a case
#else
constexpr int kMostSeconds = 20;
#endif

struct Arguments {
  std::optional<std::uint64_t> cases;  // of each kind; none: as many as there is time for
  double seconds = 60;                 // none begins later
  std::uint64_t seed = 1;
  std::string kind;                     // empty: all
  std::optional<std::uint64_t> number;  // one case alone
};

void take_environment(const std::map<std::string, std::string>& own) {
  for (const char* name : {"PMI_SIZE", "PMI_RANK", "PMI_FD", "OMPI_COMM_WORLD_SIZE", "SLURM_PROCID",
                           "SLURM_JOB_ID", "SLURM_NTASKS"}) {
    ::unsetenv(name);
  }
  ::setenv("PATH", "/nonexistent", 1);  // no scheduler's commands
  for (const auto& [name, value] : own) ::setenv(name.c_str(), value.c_str(), 1);
}

SandboxResult run_case(const Case& given, const fs::path& folder) {
  for (const fs::directory_entry& left : fs::directory_iterator(folder)) {
    fs::remove_all(left.path());
  }
  return run_in_sandbox(
      [&] {
        take_environment(given.environment);
        for (const auto& [name, bytes] : given.files) {
          if (const fs::path parent = fs::path(name).parent_path(); !parent.empty()) {
            fs::create_directories(parent);
          }
          std::ofstream(name, std::ios::binary) << bytes;
        }
        if (given.before) given.before();
        return cli::run(given.arguments);
      },
      kMostSeconds);
}

bool without_control_characters(std::string text) {
  std::erase(text, '\n');
  return printable(text) == text;
}

// What is wrong with an end, or nothing.
std::string problem_of(const Case& given, const SandboxResult& end) {
  // 71: the report of doctor, and memory that was asked for in so many words. 75: a signal, a
  // limit.
  constexpr std::array kRight = {0, 2, 3, 4, 5, 6, 71, 75};
  if (end.timed_out) return "it does not end";
  if (std::find(kRight.begin(), kRight.end(), end.status) == kRight.end()) {
    return fmt::format("status {}", end.status);
  }
  const bool raw = given.arguments[0] == "generate" || given.arguments[0] == "job";
  if (!raw && !without_control_characters(end.out)) return "control characters in the output";
  if (!without_control_characters(end.err)) return "control characters in a message";
  const bool failed = end.status != 0 && end.status != 75 && given.arguments[0] != "doctor";
  if (!failed) return "";
  // `data` says a line for each path that is bad.
  const bool several = given.arguments[0] == "data";
  const auto lines = std::count(end.err.begin(), end.err.end(), '\n');
  const auto most = several ? std::max<std::int64_t>(1, std::ssize(given.arguments) - 2) : 1;
  if (lines < 1 || lines > most || !end.err.starts_with("trireme: ") || !end.err.ends_with('\n')) {
    return fmt::format("{} lines in the place of one message", lines);
  }
  return end.err.size() > 4 * kMostOfMessage ? "a message without end" : "";
}

// For a shell.
std::string shell_text(const Case& given) {
  std::string text;
  for (const auto& [name, value] : given.environment) {
    text += fmt::format("{}='{}' ", name, shown(value));
  }
  text += "trireme";
  for (const std::string& argument : given.arguments) text += fmt::format(" '{}'", shown(argument));
  return text;
}

class Run {
 public:
  Run(const Arguments& arguments, const fs::path& folder)
      : arguments_(arguments), folder_(folder / "case") {
    make_given(folder / "given");
    fs::create_directories(folder_);
    fs::current_path(folder_);  // where cases find ../given
  }

  // Whether all went well.
  bool all() {
    const std::vector<Case> known = corpus();
    if (arguments_.kind.empty() && !arguments_.number) {
      for (std::size_t i = 0; i < known.size(); ++i) check(known[i], i);
    }
    std::vector<std::string> wanted = kinds();
    if (!arguments_.kind.empty()) wanted = {arguments_.kind};
    const std::uint64_t first = arguments_.number.value_or(0);
    const std::uint64_t end = arguments_.number ? first + 1 : arguments_.cases.value_or(~0ull);
    for (std::uint64_t i = first; i < end && !late(); ++i) {
      for (const std::string& kind : wanted) {
        Draws draws(philox_key(arguments_.seed, fmt::format("{} {}", kind, i)));
        check(make_case(kind, draws), i);
      }
    }
    std::cout << fmt::format("{} cases, {} failed; seed {}\n", count_, failed_, arguments_.seed);
    return failed_ == 0;
  }

 private:
  bool late() const {
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
    return passed.count() >= arguments_.seconds;
  }

  void check(const Case& given, std::uint64_t number) {
    ++count_;
    const SandboxResult end = run_case(given, folder_);
    const std::string problem = problem_of(given, end);
    if (arguments_.number) std::cout << end.out << end.err << "status " << end.status << "\n";
    if (problem.empty()) return;
    ++failed_;
    std::cout << fmt::format("{} {}: {}\n  {}\n  {}\n", given.kind, number, problem,
                             shell_text(given), shown(end.err, 600))
              << std::flush;
    if (arguments_.number) return;
    // Kept for a second look.
    const fs::path kept = fs::temp_directory_path() / fmt::format("fuzz-{}-{}", given.kind, number);
    std::error_code ignored;
    fs::remove_all(kept, ignored);
    fs::copy(folder_, kept, fs::copy_options::recursive, ignored);
  }

  static void make_given(const fs::path& folder) {
    fs::create_directories(folder);
    std::string text;
    for (int i = 0; i < 400; ++i) text += fmt::format("Line {} of a text for tests.\n", i);
    std::ofstream(folder / "text.txt") << text;
    const auto run = [&](const std::vector<std::string>& arguments) {
      const SandboxResult end = run_in_sandbox(
          [&] {
            fs::current_path(folder);
            take_environment({});
            return cli::run(arguments);
          },
          kMostSeconds);
      if (end.status == 0) return;
      std::cerr << "fuzz_test: what the cases need cannot be made: " << end.err;
      std::exit(1);
    };
    run({"prepare", "text.txt", "--output", "data", "--tokenizer", "byte", "--validation",
         "tail:2000", "--threads", "1"});
    run({"prepare", "text.txt", "--output", "bpe", "--tokenizer", "bpe:300", "--threads", "1"});
    for (unsigned i = 0; i < 4; ++i) {
      const fs::path own = folder / "pets" / (i < 2 ? "cat" : "dog");
      fs::create_directories(own);
      std::ofstream(own / fmt::format("{}.png", i), std::ios::binary)
          << testing::make_png({8, 8}, i);
    }
    run({"prepare", "--images", "true", "pets", "--output", "images", "--threads", "1"});
    write_tokenizer_of(folder / "bpe" / "train.h5", folder / "bpe.model");
    const fs::path recorded = TRIREME_TOKENIZERS;
    fs::copy_file(recorded / "qwen2.json", folder / "pairs.json");
    fs::copy_file(recorded / "bert_uncased.json", folder / "words.json");
    run({"train", "--data.train",   "data", "--data.validation", "data", "--run.steps",
         "2",     "--batch.global", "2",    "--batch.micro",     "1",    "--model.layers",
         "1",     "--model.width",  "16",   "--model.heads",     "2",    "--model.context",
         "8",     "--threads",      "1",    "--device",          "cpu"});
  }

  static void write_tokenizer_of(const fs::path& shard, const fs::path& model) {
    const SandboxResult end = run_in_sandbox(
        [&] {
          write_stored_tokenizer(shard.string(), model.string());
          return 0;
        },
        kMostSeconds);
    if (end.status != 0) std::cerr << end.err;
  }

  const Arguments arguments_;
  const fs::path folder_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  std::uint64_t count_ = 0, failed_ = 0;
};

template <class Number>
bool read(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  return result.ec == std::errc() && result.ptr == end;
}

std::optional<Arguments> arguments_of(const std::vector<std::string>& words) {
  Arguments arguments;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    const std::string &name = words[i], &value = words[i + 1];
    bool good = true;
    if (name == "--cases") {
      good = read(value, arguments.cases.emplace());
    } else if (name == "--seconds") {
      good = read(value, arguments.seconds);
    } else if (name == "--seed") {
      good = read(value, arguments.seed);
    } else if (name == "--kind") {
      const std::vector<std::string> all = kinds();
      good = std::find(all.begin(), all.end(), value) != all.end();
      arguments.kind = value;
    } else {
      good = name == "--case" && read(value, arguments.number.emplace());
    }
    if (!good) return {};
  }
  if (words.size() % 2 != 0 || (arguments.number && arguments.kind.empty())) return {};
  return arguments;
}

}  // namespace
}  // namespace trireme::fuzz

int main(int argc, char** argv) {
  const auto arguments = trireme::fuzz::arguments_of({argv + 1, argv + argc});
  if (!arguments) {
    std::cerr << fmt::format(
        "usage: fuzz_test [--cases N] [--seconds N] [--seed S] [--kind {}] [--case I]\n",
        fmt::join(trireme::fuzz::kinds(), "|"));
    return 2;
  }
  const trireme::testing::TemporaryFolder folder;
  return trireme::fuzz::Run(*arguments, folder.path()).all() ? 0 : 1;
}

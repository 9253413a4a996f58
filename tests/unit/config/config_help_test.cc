// What --help says of the keys, and what a key that does not exist gets.
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/config/config.h"

#include "support/config_testing.h"

namespace trireme {
namespace {

using testing::refusal;

TEST(Config, UnknownFlags) {
  EXPECT_EQ(refusal({"--optim.rl", "1"}), "unknown flag --optim.rl; did you mean --optim.lr?");
  EXPECT_EQ(refusal({"--lr", "1"}), "unknown flag --lr; did you mean --optim.lr?");
  EXPECT_EQ(refusal({"--thread", "1"}), "unknown flag --thread; did you mean --threads?");
  EXPECT_EQ(refusal({"--model.head", "1"}),
            "unknown flag --model.head; did you mean --model.heads?");
  EXPECT_EQ(refusal({"--frobnicate", "1"}), "unknown flag --frobnicate; --help lists them all");
}

// The text of one key in --help, with single spaces.
std::string help_of(const std::string& name) {
  const std::string help = config_help();
  const std::size_t at = help.find("\n  --" + name + " ");
  if (at == std::string::npos) return "";
  std::istringstream words(help.substr(at, help.find("\n  --", at + 1) - at));
  std::string text, word;
  while (words >> word) text += word + ' ';
  return text;
}

TEST(Config, HelpNamesEveryKeyWithItsDefault) {
  EXPECT_TRUE(parse_config({"--help"}).help);
  Config config;
  Options options("");
  add_config_keys(options, config);
  for (const std::string& name : options.names()) {
    EXPECT_NE(help_of(name).find("default "), std::string::npos) << name << ": " << help_of(name);
  }
  // The defaults are those that a configuration starts with.
  std::istringstream lines(config_to_ini(config));
  std::string section;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with('[')) section = line.substr(1, line.size() - 2);
    const std::size_t equals = line.find(" = ");
    if (equals == std::string::npos) continue;
    const std::string key = section + "." + line.substr(0, equals);
    const std::string value = line.substr(equals + 3);
    const std::string expected = fmt::format("default {}]", value == "\"\"" ? "none" : value);
    EXPECT_NE(help_of(key).find(expected), std::string::npos) << help_of(key);
  }
}

TEST(Config, HelpNamesUnitsAndChoices) {
  for (const auto& [key, unit] :
       std::vector<std::pair<std::string, std::string>>{{"run.steps", "steps"},
                                                        {"model.width", "channels"},
                                                        {"model.context", "tokens"},
                                                        {"batch.global", "samples"},
                                                        {"grid.pipeline", "stages"},
                                                        {"comm.timeout", "seconds"},
                                                        {"schedule.warmup", "steps"},
                                                        {"checkpoint.keep", "checkpoints"},
                                                        {"data.train", "HDF5 shards"},
                                                        {"run.threads", "threads per rank"}}) {
    EXPECT_NE(help_of(key).find(fmt::format("[{}; default ", unit)), std::string::npos)
        << help_of(key);
  }
  EXPECT_EQ(
      help_of("grid.schedule"),
      "--grid.schedule TEXT pipeline schedule; interleaved: 1F1B over grid.chunks parts of the "
      "model on each stage, for less idle time and more messages; zb-h1: 1F1B whose weight "
      "gradients fill idle time; zb-v: the same over two chunks in a V, with the least idle "
      "time; both hold as much on every stage as 1f1b does on the first: gpipe, 1f1b, "
      "interleaved, zb-h1, zb-v [default 1f1b] ");
  EXPECT_EQ(
      help_of("run.device"),
      "--run.device TEXT where to compute; cuda: each rank on a GPU; auto: cuda where every rank "
      "sees a GPU, else cpu: auto, cpu, cuda [default auto] (also --device) ");
  EXPECT_NE(help_of("config"), "");
}

TEST(Config, HelpFitsATerminalOf100Columns) {
  std::istringstream lines(config_help());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

}  // namespace
}  // namespace trireme

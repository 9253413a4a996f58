// What a job is written from: templates, words of a shell, and what users and sites say of it.
#include <gtest/gtest.h>

#include "trireme/base/options.h"
#include "trireme/job/job_script.h"

#include "support/message_of.h"

namespace trireme {
namespace {

using testing::message_of;

TEST(FillTemplate, ReplacesWordsAndBlocks) {
  const Placeholders values = {{"NODES", "4"}, {"GRACE", "120"}, {"LINES", "a\n\nb @NODES@\n"}};
  EXPECT_EQ(fill_template("#SBATCH --nodes=@NODES@\nUSR1@@GRACE@ a@b @ @nodes@\n", "t", values),
            "#SBATCH --nodes=4\nUSR1@120 a@b @ @nodes@\n");
  // A value is not searched again; its lines are indented like the placeholder.
  EXPECT_EQ(fill_template("x=(\n  # @LINES@\n)\n", "t", values), "x=(\n  a\n\n  b @NODES@\n)\n");
  EXPECT_EQ(fill_template("# @LINES@ more", "t", {{"LINES", "a"}}), "# a more\n");
  EXPECT_EQ(fill_template("# @LINES@\nend", "t", {{"LINES", ""}}), "end\n");
}

TEST(FillTemplate, RefusesWhatItDoesNotKnow) {
  const Placeholders values = {{"NODES", "4"}, {"POINTS", std::nullopt}};
  // bad input: `job`: a placeholder that is unknown, or that nothing is known for | own:1: unknown
  // placeholder @NODE@; did you mean @NODES@? | 2
  EXPECT_EQ(message_of([&] { fill_template("\n@NODE@", "chain", values); }),
            "chain:2: unknown placeholder @NODE@; did you mean @NODES@?");
  EXPECT_EQ(message_of([&] { fill_template("# @QUEUE@", "chain", values); }),
            "chain:1: unknown placeholder @QUEUE@; there are NODES, POINTS");
  EXPECT_EQ(message_of([&] { fill_template("# @POINTS@", "chain", values); }),
            "chain:1: nothing is known to put in the place of @POINTS@");
}

TEST(ShellWord, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(shell_word("--optim.lr=1e-3"), "--optim.lr=1e-3");
  EXPECT_EQ(shell_word("--run.folder=my run"), "'--run.folder=my run'");
  EXPECT_EQ(shell_word("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(shell_word("a[1]*"), "'a[1]*'");
  EXPECT_EQ(shell_word(""), "''");
}

TEST(ReadMib, TakesUnits) {
  EXPECT_EQ(read_mib("1500", "--memory"), 1500);
  EXPECT_EQ(read_mib("1500M", "--memory"), 1500);
  EXPECT_EQ(read_mib("2G", "--memory"), 2048);
  EXPECT_EQ(read_mib("1T", "--memory"), 1 << 20);
  for (const char* text : {"2g", "2GB", "2GiB", "2 GiB", "2.0G"}) {
    EXPECT_EQ(read_mib(text, "--memory"), 2048) << text;
  }
  for (const char* text : {"", "0", "-1", "512K", "2XB", "G", "99999999999999999999"}) {
    // bad input: `job`: `--memory` that is none, or more than a node has | --memory 2XB: expected
    // an amount of memory, as in 1500M, 64G or 1T | 2
    EXPECT_EQ(
        message_of([&] { read_mib(text, "--memory"); }),
        "--memory " + std::string(text) + ": expected an amount of memory, as in 1500M, 64G or 1T");
  }
}

TEST(ReadTimeLimit, TakesWhatSbatchTakes) {
  const auto seconds = [](const std::string& text) {
    return read_time_limit(text, "--time").value_or(-1);
  };
  EXPECT_EQ(seconds("90"), 5400);
  EXPECT_EQ(seconds("1:30"), 90);
  EXPECT_EQ(seconds("02:00:05"), 7205);
  EXPECT_EQ(seconds("1-12"), 129600);
  EXPECT_EQ(seconds("1-12:30"), 131400);
  EXPECT_EQ(seconds("1-12:30:10"), 131410);
  for (const char* none : {"0", "00:00:00", "UNLIMITED", "infinite"}) EXPECT_EQ(seconds(none), -1);
  for (const char* bad :
       {"", "1:2:3:4", "-1", "1-", "1-2:3:4:5", "1-1-1", "9999999999", "1:", "x"}) {
    EXPECT_NE(message_of([&] { seconds(bad); }).find("expected minutes"), std::string::npos) << bad;
  }
}

TEST(SbatchOptions, AreThoseThatSbatchReads) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(sbatch_options("#!/bin/bash\n#SBATCH --time=5 -N 2 # two\n# a comment\n\n"
                           "#SBATCH --comment=\"a b\" --output='x y'\\ z\n  ulimit -c 0\n"
                           "#SBATCH --mem=1\n"),
            Words({"--time=5", "-N", "2", "--comment=a b", "--output=x y z"}));
  EXPECT_EQ(sbatch_options("#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2"), Words({"-N1", ":", "-N2"}));
  EXPECT_EQ(sbatch_options(""), Words());
}

TEST(SiteFile, RefusesWhatCannotStandInAScript) {
  // bad input: `job`: an unknown key of the site file, a value that cannot stand in a script |
  // site.ini:2: unknown key slurm.partitoin; did you mean slurm.partition? | 2
  EXPECT_EQ(message_of([] { site_from_ini("[slurm]\npartitoin = long\n", "site.ini"); }),
            "site.ini:2: unknown key slurm.partitoin; did you mean slurm.partition?");
  EXPECT_EQ(message_of([] { site_from_ini("[slurm]\naccount = a; b\n", "site.ini"); }),
            "site.ini: slurm.account = a; b: the character ';' cannot stand there; letters, digits "
            "and _-+=.,:/%@[] can");
  EXPECT_EQ(message_of([] { site_from_ini("[slurm]\nextra = \"--x\\n--y\"\n", "site.ini"); }),
            "site.ini: slurm.extra = --x\\n--y: the character '\\n' cannot stand there; letters, "
            "digits and _-+=.,:/%@[] can");
  EXPECT_EQ(message_of([] { site_from_ini("[slurm]\nmemory = 0\n", "site.ini"); }),
            "site.ini:2: slurm.memory = 0: must be at least 1 and at most 1099511627776");
}

TEST(JobKeys, AreNoMatterForTraining) {
  Config config;
  Options options("trireme train", true);
  add_config_keys(options, config);
  options.ignore_section("job");
  options.parse_ini("[job]\nnodes = 2\nwhatever = 1\n[run]\nsteps = 5\n", "run.ini");
  EXPECT_EQ(config.run.steps, 5);
  EXPECT_NE(message_of([&] {
              options.parse_ini("[jobs]\nnodes = 2\n", "run.ini");
            }).find("unknown key jobs.nodes"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme

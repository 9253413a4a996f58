#include "trireme/base/options.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/byte_size.h"
#include "trireme/base/error.h"
#include "trireme/config/weighted_paths.h"

#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using testing::message_of;

// The options of some other command than train.
struct Command {
  double temperature = 1.0;
  std::int64_t tokens = 64;
  bool stream = false;
  std::string prompt;
  std::optional<int> top_k;
  std::vector<std::string> inputs;
  Options options{"trireme sample [INPUT]..."};

  explicit Command(bool positionals = false) {
    options.add("sample.temperature", temperature, "", "sharpness", above(0));
    options.add("sample.tokens", tokens, "tokens", "length of the text", at_least(1));
    options.add("sample.top_k", top_k, "tokens", "most likely tokens to draw from", at_least(1));
    options.add("sample.stream", stream, "", "print as it comes");
    options.add("sample.prompt", prompt, "", "how the text starts");
    options.alias("prompt", "sample.prompt");
    if (positionals) options.add_positional("INPUT", inputs, "files to go on from");
  }
  std::string parse(const std::vector<std::string>& arguments) {
    return message_of([&] { options.parse(arguments); });
  }
};

TEST(Options, FlagsTakeTheNextArgumentOrAnEqualsSign) {
  Command command;
  EXPECT_EQ(command.parse({"--sample.tokens", "7", "--sample.temperature=0.5", "--prompt", "a b"}),
            "no error");
  EXPECT_EQ(command.tokens, 7);
  EXPECT_EQ(command.temperature, 0.5);
  EXPECT_EQ(command.prompt, "a b");
}

TEST(Options, ASwitchNeedsNoValueButTakesOne) {
  Command command;
  EXPECT_EQ(command.parse({"--sample.stream", "--sample.tokens", "7"}), "no error");
  EXPECT_TRUE(command.stream);
  EXPECT_EQ(command.parse({"--sample.stream", "false"}), "no error");
  EXPECT_FALSE(command.stream);
  EXPECT_EQ(command.parse({"--sample.stream=true"}), "no error");
  EXPECT_TRUE(command.stream);
  EXPECT_EQ(command.parse({"--sample.stream", "yes"}),
            "--sample.stream yes: is neither true nor false");
}

TEST(Options, AutoUnsetsAnOptionalValue) {
  Command command;
  EXPECT_EQ(command.parse({"--sample.top_k", "5"}), "no error");
  EXPECT_EQ(command.top_k, 5);
  EXPECT_EQ(command.parse({"--sample.top_k", "auto"}), "no error");
  EXPECT_EQ(command.top_k, std::nullopt);
  EXPECT_EQ(command.parse({"--sample.tokens", "auto"}),
            "--sample.tokens auto: is not a whole number");
}

TEST(Options, PositionalsAreErrorsUnlessDeclared) {
  Command without, with(true);
  EXPECT_EQ(without.parse({"a.txt"}),
            "unexpected argument 'a.txt': values follow a flag, as in --KEY VALUE; "
            "--help lists them");
  EXPECT_EQ(without.parse({"-x"}),
            "unexpected argument '-x': values follow a flag, as in --KEY VALUE; "
            "--help lists them");
  EXPECT_EQ(with.parse({"a.txt", "--sample.tokens", "3", "b.txt", "--", "--help"}), "no error");
  EXPECT_EQ(with.inputs, (std::vector<std::string>{"a.txt", "b.txt", "--help"}));
  EXPECT_FALSE(with.options.help_requested());
}

TEST(Options, UnknownFlagsSuggestTheNearest) {
  Command command;
  EXPECT_EQ(command.parse({"--sample.token", "3"}),
            "unknown flag --sample.token; did you mean --sample.tokens?");
  EXPECT_EQ(command.parse({"--tokens=3"}), "unknown flag --tokens; did you mean --sample.tokens?");
  EXPECT_EQ(command.parse({"--promt", "x"}), "unknown flag --promt; did you mean --prompt?");
  EXPECT_EQ(command.parse({"--generate.tokens", "3"}),
            "unknown flag --generate.tokens; did you mean --sample.tokens?");
  EXPECT_EQ(command.parse({"--colour", "red"}), "unknown flag --colour; --help lists them all");
  // A shortened name is not guessed.
  EXPECT_EQ(command.parse({"--sample.temp", "3"}),
            "unknown flag --sample.temp; sample has temperature, tokens, top_k, "
            "stream, prompt");
  EXPECT_EQ(command.parse({"--config", "x"}), "unknown flag --config; --help lists them all");
}

TEST(Options, NamesOfOtherProgramsSuggestOurs) {
  const std::vector<std::string> known = {"optim.lr", "batch.global", "run.steps", "run.folder"};
  EXPECT_EQ(nearest_name("learning_rate", known), "optim.lr");
  EXPECT_EQ(nearest_name("learning-rate", known), "optim.lr");
  EXPECT_EQ(nearest_name("optimizer.learning_rate", known), "optim.lr");
  EXPECT_EQ(nearest_name("batch_size", known), "batch.global");
  EXPECT_EQ(nearest_name("epochs", known), "run.steps");
  EXPECT_EQ(nearest_name("vocab_size", known), std::nullopt);  // ours is not among them
  // The factor of the step curve is no lowest rate, and the part of a rate none either.
  EXPECT_EQ(nearest_name("schedule.min_lr", {"schedule.factor", "schedule.least"}), std::nullopt);
  EXPECT_EQ(nearest_name("min_lr_ratio", {"schedule.factor", "schedule.least"}), "schedule.least");
  EXPECT_EQ(nearest_name("T_mult", {"schedule.period", "schedule.period_factor"}),
            "schedule.period_factor");
  EXPECT_EQ(nearest_name("gpu", {"auto", "cpu", "cuda"}), "cuda");
  // Capital letters count least.
  EXPECT_EQ(nearest_name("adamW", {"adam", "adamw"}), "adamw");
  EXPECT_EQ(nearest_name("Optim.LR", known), "optim.lr");
  EXPECT_EQ(nearest_name("CPU", {"auto", "cpu", "cuda"}), "cpu");
}

TEST(Options, AsksForHelpInSeveralWays) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--help"}, {"-h"}, {"--sample.tokens=3", "-h"}}) {
    Command command;
    EXPECT_EQ(command.parse(arguments), "no error");
    EXPECT_TRUE(command.options.help_requested());
  }
  Command command;
  EXPECT_EQ(command.parse({"--prompt", "-h"}), "no error");
  EXPECT_FALSE(command.options.help_requested());
  EXPECT_EQ(command.prompt, "-h");
}

TEST(Options, AMissingValueIsAnErrorAndOfSeveralTheLastCounts) {
  Command command;
  EXPECT_EQ(command.parse({"--sample.tokens"}), "--sample.tokens: a value must follow");
  EXPECT_EQ(command.parse({"--sample.tokens="}), "--sample.tokens: a value must follow");
  EXPECT_EQ(command.parse({"--sample.tokens", "--sample.stream"}),
            "--sample.tokens: a value must follow");
  EXPECT_EQ(command.parse({"--prompt", "--sample.tokens=3"}), "--prompt: a value must follow");
  EXPECT_EQ(command.parse({"--prompt=--x"}), "no error");
  EXPECT_EQ(command.prompt, "--x");
  EXPECT_EQ(command.parse({"--prompt", "a", "--sample.prompt", "b"}), "no error");
  EXPECT_EQ(command.prompt, "b");
  EXPECT_EQ(command.parse({"--sample.tokens", "many", "--sample.tokens", "7"}), "no error");
  EXPECT_EQ(command.tokens, 7);
}

TEST(Options, NumbersAreReadWhole) {
  Command command;
  const auto tokens = [&](const std::string& text) {
    return command.parse({"--sample.tokens", text});
  };
  EXPECT_EQ(tokens("7x"), "--sample.tokens 7x: is not a whole number");
  EXPECT_EQ(tokens("7.5"), "--sample.tokens 7.5: is not a whole number");
  EXPECT_EQ(tokens(" 7"), "--sample.tokens  7: is not a whole number");
  EXPECT_EQ(tokens("0"), "--sample.tokens 0: must be at least 1");
  EXPECT_EQ(tokens("-3"), "--sample.tokens -3: must be at least 1");
  EXPECT_EQ(tokens("99999999999999999999"),
            "--sample.tokens 99999999999999999999: is out of range");
  EXPECT_EQ(command.parse({"--sample.temperature", "nan"}),
            "--sample.temperature nan: is not a number");
  EXPECT_EQ(command.parse({"--sample.temperature", "inf"}),
            "--sample.temperature inf: is not a number");
  EXPECT_EQ(command.parse({"--sample.temperature", "0"}),
            "--sample.temperature 0: must be above 0");
  EXPECT_EQ(command.parse({"--sample.temperature", "1e-3"}), "no error");
  EXPECT_EQ(command.temperature, 1e-3);
}

TEST(Options, HelpWinsOverEverythingElse) {
  Command command;
  EXPECT_EQ(command.parse({"--nonsense", "--help"}), "no error");
  EXPECT_TRUE(command.options.help_requested());
}

TEST(Options, HelpText) {
  Command command(true);
  EXPECT_EQ(command.options.help(),
            "usage: trireme sample [INPUT]...\n"
            "\n"
            "  INPUT                           files to go on from\n"
            "  --help                          show this text\n"
            "\n"
            "sample:\n"
            "  --sample.temperature X          sharpness [default 1]\n"
            "  --sample.tokens N               length of the text [tokens; default 64]\n"
            "  --sample.top_k N                most likely tokens to draw from [tokens; default "
            "auto]\n"
            "  --sample.stream true|false      print as it comes [default false]\n"
            "  --sample.prompt TEXT            how the text starts [default none] (also "
            "--prompt)\n");
}

TEST(Options, ASwitchTakesNoArgumentForItsValue) {
  Command command(/*positionals=*/true);
  command.options.parse({"--sample.stream", "a.txt"});
  EXPECT_TRUE(command.stream);
  EXPECT_EQ(command.inputs, std::vector<std::string>{"a.txt"});
  Command off(/*positionals=*/true);
  off.options.parse({"--sample.stream", "false", "b.txt"});
  EXPECT_FALSE(off.stream);
  EXPECT_EQ(off.inputs, std::vector<std::string>{"b.txt"});
}

TEST(Options, IniSyntax) {
  Command command;
  command.options.parse_ini(
      "# comment\r\n; another\n\n[sample]\n tokens = 9 # nine\ntop_k=3\nprompt = \"a # b \\\"c\\\" "
      "\" "
      "; quoted\nstream = true\r\n[]\nsample.temperature = 2",
      "a.ini");
  EXPECT_EQ(command.tokens, 9);
  EXPECT_EQ(command.top_k, 3);
  EXPECT_EQ(command.prompt, "a # b \"c\" ");
  EXPECT_TRUE(command.stream);
  EXPECT_EQ(command.temperature, 2);
}

TEST(Options, AByteOrderMarkIsNoPartOfAFile) {
  const std::string path = ::testing::TempDir() + "marked.ini";
  std::ofstream(path) << "\xef\xbb\xbf[sample]\r\ntokens = 9\r\n";
  Command command;
  command.options.parse_ini(read_config_file(path), path);
  EXPECT_EQ(command.tokens, 9);
}

TEST(Options, IniErrorsNameFileAndLine) {
  Command command;
  const auto ini = [&](const std::string& text) {
    return message_of([&] { command.options.parse_ini(text, "a.ini"); });
  };
  EXPECT_EQ(ini("[sample]\n\ntoken = 3\n"),
            "a.ini:3: unknown key sample.token; did you mean sample.tokens?");
  EXPECT_EQ(ini("[simple]\ntokens = 3\n"),
            "a.ini:2: unknown key simple.tokens; did you mean sample.tokens?");
  EXPECT_EQ(ini("tokens = 3\n"), "a.ini:1: unknown key tokens; did you mean sample.tokens?");
  EXPECT_EQ(ini("prompt = 3\n"), "a.ini:1: unknown key prompt; did you mean sample.prompt?");
  EXPECT_EQ(ini("[sample]\ntokens = 0\n"), "a.ini:2: sample.tokens = 0: must be at least 1");
  EXPECT_EQ(ini("[sample]\ntokens 3\n"),
            "a.ini:2: 'tokens 3' is neither 'key = value' nor '[section]'");
  EXPECT_EQ(ini("[sample\n"), "a.ini:1: '[sample' is neither 'key = value' nor '[section]'");
  EXPECT_EQ(ini("[sample]\ntokens = 3\n\ntokens = 4\n"),
            "a.ini:4: sample.tokens was set in line 2 already");
  EXPECT_EQ(ini("[sample]\nprompt = \"abc\n"), "a.ini:2: sample.prompt: the quotes do not close");
}

TEST(Options, AnyTextSurvivesTheIniWriter) {
  for (const std::string text : {"", " ", "a # b", "#", "\"", "\"a\"", "a\\b", "\\\"", "line\nline",
                                 " end ", "a = b", "[x]", "auto", ";", "tab\t"}) {
    Command written, read;
    written.prompt = text;
    read.options.parse_ini(written.options.to_ini(), "a.ini");
    EXPECT_EQ(read.prompt, text) << written.options.to_ini();
  }
}

TEST(Options, AKeyThatHasADefaultButNoValueIsWrittenAsAuto) {
  std::optional<int> every = 500, top_k;
  const auto declare = [&](Options& options) {
    options.add("save.every", every, "steps", "how often");
    options.add("save.top_k", top_k, "", "how many");
  };
  Options written(""), read("");
  declare(written);
  declare(read);
  every.reset();
  EXPECT_EQ(written.to_flags(), std::vector<std::string>{"--save.every=auto"});
  const std::string ini = written.to_ini();
  EXPECT_EQ(ini, "[save]\nevery = auto\n");
  every = 7;
  read.parse_ini(ini, "a.ini");
  EXPECT_EQ(every, std::nullopt);
}

TEST(Options, WeightedPaths) {
  std::vector<WeightedPath> paths;
  EXPECT_EQ(read_value("a.h5,b/c.h5=2.5,d\\,e\\=f=0.5", paths, {}), "");
  const std::vector<WeightedPath> expected = {{"a.h5"}, {"b/c.h5", 2.5}, {"d,e=f", 0.5}};
  EXPECT_EQ(paths, expected);
  EXPECT_EQ(write_value(paths), "a.h5,b/c.h5=2.5,d\\,e\\=f=0.5");
  EXPECT_EQ(read_value("a,,b", paths, {}), "holds an empty path");
  EXPECT_EQ(read_value("a,", paths, {}), "holds an empty path");
  EXPECT_EQ(read_value("=2", paths, {}), "holds an empty path");
  EXPECT_EQ(
      read_value("a=two", paths, {}),
      "holds the weight 'two', which is not a number; there is no file a=two: a backslash before "
      "= or , keeps it in a path");
  EXPECT_EQ(
      read_value("a=0", paths, {}),
      "holds the weight '0', which must be above 0; there is no file a=0: a backslash before = "
      "or , keeps it in a path");
  EXPECT_EQ(paths, expected);  // what is refused changes nothing
  // A weight of 1 that is written is one.
  EXPECT_EQ(read_value("a=1,b", paths, {}), "");
  EXPECT_EQ(paths, (std::vector<WeightedPath>{{"a", 1.0}, {"b"}}));
  EXPECT_EQ(write_value(paths), "a=1,b");
  EXPECT_EQ(read_value("", paths, {}), "");
  EXPECT_TRUE(paths.empty());
}

TEST(Options, APathThatExistsIsOneWhateverItHolds) {
  const testing::TemporaryFolder folder;
  const std::string root = folder.path();
  for (const char* name : {"lang=en", "a,b", "c,d=2", "e"}) {
    std::filesystem::create_directory(folder.path() / name);
  }
  const auto read = [&](const std::string& text) {
    std::vector<WeightedPath> paths;
    EXPECT_EQ(read_value(text, paths, {}), "") << text;
    return paths;
  };
  using Paths = std::vector<WeightedPath>;
  EXPECT_EQ(read(root + "/lang=en"), (Paths{{root + "/lang=en"}}));
  EXPECT_EQ(read(root + "/lang=en=2"), (Paths{{root + "/lang=en", 2.0}}));
  EXPECT_EQ(read(root + "/lang=de=2"), (Paths{{root + "/lang=de", 2.0}}));
  EXPECT_EQ(read(root + "/a,b"), (Paths{{root + "/a,b"}}));
  EXPECT_EQ(read(fmt::format("x,{0}/a,b=3,{0}/c,d=2,{0}/e", root)),
            (Paths{{"x"}, {root + "/a,b", 3.0}, {root + "/c,d=2"}, {root + "/e"}}));
  const std::string escaped = write_value(read(root + "/c,d=2"));
  EXPECT_EQ(escaped, root + "/c\\,d\\=2");
  EXPECT_EQ(read(escaped), (Paths{{root + "/c,d=2"}}));
}

// A command with paths in each of their forms.
struct Paths {
  std::string folder, list;
  std::vector<WeightedPath> parts;
  Options options{"trireme move", true};

  Paths() {
    options.add("run.folder", folder, "path", "");
    options.add("run.list", list, "", "");
    options.add("run.parts", parts, "", "");
    options.paths({"run.folder"});
    options.paths({"run.list"}, PathForm::kList);
    options.paths({"run.parts"}, PathForm::kWeightedList);
    ::setenv("HOME", "/home/ada", 1);
    ::setenv("SCRATCH", "/scratch/a,b=c", 1);
    ::setenv("TMPDIR", "/tmp/job.7", 1);
    ::setenv("NOTHING", "", 1);
    ::unsetenv("NOWHERE");
  }
  std::string folder_of(const std::string& text) {
    const std::string problem = message_of([&] { options.parse({"--run.folder=" + text}); });
    return problem == "no error" ? folder : problem;
  }
};

TEST(Options, PathsBeginAsAShellReadsThem) {
  Paths command;
  EXPECT_EQ(command.folder_of("~"), "/home/ada");
  EXPECT_EQ(command.folder_of("~/x"), "/home/ada/x");
  EXPECT_EQ(command.folder_of("~root/x"), "/root/x");
  EXPECT_EQ(command.folder_of("~nobody-of-that-name/x"), "~nobody-of-that-name/x");
  EXPECT_EQ(command.folder_of("$SCRATCH/x"), "/scratch/a,b=c/x");
  EXPECT_EQ(command.folder_of("${SCRATCH}x"), "/scratch/a,b=cx");
  EXPECT_EQ(command.folder_of("~/$SCRATCH/$"), "/home/ada//scratch/a,b=c/$");
  EXPECT_EQ(command.folder_of("$TMPDIR"), "/tmp/job.7");
  // What does not begin so is a name as it stands.
  for (const char* text : {"./~", "./$SCRATCH", "a$SCRATCH", "/a/~"}) {
    EXPECT_EQ(command.folder_of(text), text);
  }
  EXPECT_EQ(command.folder_of("-"), "-");
  EXPECT_EQ(command.folder_of("-x/y"), "./-x/y");
  ::setenv("SCRATCH", "$x", 1);
  EXPECT_EQ(command.folder_of("$SCRATCH"), "./$x");

  Paths lists;
  lists.options.parse_ini(
      "[run]\nfolder = ~/a\nlist = ~/a,b,$SCRATCH/c\n"
      "parts = ~/a=2,$SCRATCH/b=0.5,\\$c\n",
      "a.ini");
  EXPECT_EQ(lists.folder, "/home/ada/a");
  EXPECT_EQ(lists.list, "/home/ada/a,b,/scratch/a,b=c/c");
  EXPECT_EQ(lists.parts,
            (std::vector<WeightedPath>{{"/home/ada/a", 2.0}, {"/scratch/a,b=c/b", 0.5}, {"$c"}}));
  EXPECT_EQ(write_value(lists.parts), "/home/ada/a=2,/scratch/a\\,b\\=c/b=0.5,\\$c");
  std::string file;
  message_of([&] {
    lists.options.parse({"--config", "~/a.ini"}, [&](const std::string& path) {
      file = path;
      return std::string();
    });
  });
  EXPECT_EQ(file, "/home/ada/a.ini");
}

TEST(Options, RefusesPathsThatCannotBeExpanded) {
  Paths command;
  // bad input: every command that takes paths: a variable at the start of a path that is not set,
  // or empty | --run.folder $NOWHERE/x: the variable NOWHERE is not set: set it, write the path
  // out, or begin with ./ for a name with a $ | 2
  EXPECT_EQ(command.folder_of("$NOWHERE/x"),
            "--run.folder $NOWHERE/x: the variable NOWHERE is not set: set it, write the path out, "
            "or begin with ./ for a name with a $");
  EXPECT_NE(command.folder_of("~/${NOTHING}").find("the variable NOTHING is empty"),
            std::string::npos);
  EXPECT_EQ(command.folder_of("$(date)"),
            "--run.folder $(date): $ must begin $NAME or ${NAME}; ./ before it keeps it as a part "
            "of a name");
  EXPECT_NE(message_of([&] {
              command.options.parse({"--run.parts", "a=0.5,$NOWHERE/b=1"});
            }).find("NOWHERE is not set"),
            std::string::npos);
  command.options.for_job();
  // bad input: `job`: a path that begins with a variable which only the job has | --run.folder
  // $SLURM_JOB_ID: only the job itself knows its $SLURM_JOB_ID: give a path that is known now | 2
  for (const std::string name : {"SLURM_JOB_ID", "TMPDIR", "SLURM_TMPDIR"}) {
    EXPECT_NE(command.folder_of("${" + name + "}/x")
                  .find("only the job itself knows its $" + name + ": give a path"),
              std::string::npos);
  }
  EXPECT_EQ(command.folder_of("~/x"), "/home/ada/x");
}

TEST(Options, Sizes) {
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  for (const char* text : {"80G", "80GB", "80GiB", "80 GiB", "80g", "80gb", "80.0G", "81920M"}) {
    EXPECT_EQ(read_size(text), 80 * kGib) << text;
  }
  EXPECT_EQ(read_size("1500"), 1500);
  EXPECT_EQ(read_size("1500 B"), 1500);
  EXPECT_EQ(read_size("1500", 1024), 1500 * 1024);
  EXPECT_EQ(read_size("1500B", 1024), 1500);
  EXPECT_EQ(read_size("1.5K"), 1536);
  EXPECT_EQ(read_size("1T"), 1024 * kGib);
  for (const char* text : {"", "G", "-1", "-0", "8X", "8Gi", "8GiBs", "8  G", "8 ", " 8", "1e9",
                           "1.5", "1.5B", "nan", "inf", "9999999P"}) {
    EXPECT_EQ(read_size(text), std::nullopt) << text;
  }
  std::optional<MebibyteSize> memory;
  Options options("");
  options.add("slurm.gpu_memory", memory, "MiB", "memory of a GPU", at_least(1));
  for (const char* text : {"80G", "80 GiB", "81920"}) {
    options.parse_ini(fmt::format("[slurm]\ngpu_memory = {}\n", text), "site.ini");
    ASSERT_TRUE(memory);
    EXPECT_EQ(memory->count, 81920) << text;
  }
  EXPECT_EQ(options.to_flags(), std::vector<std::string>{"--slurm.gpu_memory=81920"});
  EXPECT_EQ(message_of([&] { options.parse_ini("[slurm]\ngpu_memory = much\n", "site.ini"); }),
            "site.ini:2: slurm.gpu_memory = much: is not a size, as in 1500M, 64G or 80GiB");
  EXPECT_EQ(message_of([&] {
              options.parse({"--slurm.gpu_memory", "5K"});
            }),
            "--slurm.gpu_memory 5K: must be at least 1");
}

// A command whose key shape.kind decides on the other keys of the section.
struct Shapes {
  std::string kind = "circle";
  OptionValues values;
  bool filled = false;
  Options options{"trireme draw", true};

  Shapes() {
    const auto declare = [](Options& into, const std::string& of, OptionValues& to) {
      if (of == "circle") into.add_value<int>("shape.radius", to, "mm", "", at_least(1));
      if (of == "square") into.add_value<double>("shape.side", to, "mm", "", above(0));
      const std::string other = of == "circle" ? "blue" : "green";
      into.add_value<std::string>("shape.colour", to, "", "", one_of({"red", other}));
    };
    options.add_selector("shape.kind", kind, values, "", one_of({"circle", "square"}),
                         OnChange::kOtherRun, declare);
    options.add("draw.filled", filled, "", "");
  }
  std::string parse(const std::vector<std::string>& arguments, const std::string& file = "") {
    return message_of([&] { options.parse(arguments, [&](const std::string&) { return file; }); });
  }
};

TEST(Options, AKeyMayDecideOnOthers) {
  using Names = std::vector<std::string>;
  Shapes shapes;
  EXPECT_EQ(shapes.parse({"--shape.radius", "3", "--shape.colour", "red"}), "no error");
  EXPECT_EQ(shapes.values, (OptionValues{{"colour", "red"}, {"radius", "3"}}));
  // The keys of another kind stand in the place of the first one's, whose values are gone.
  EXPECT_EQ(shapes.parse({"--shape.side", "2.50", "--shape.kind=square"}), "no error");
  EXPECT_EQ(shapes.values, (OptionValues{{"side", "2.5"}}));
  EXPECT_EQ(shapes.options.names(),
            (Names{"config", "shape.kind", "shape.side", "shape.colour", "draw.filled"}));
  EXPECT_EQ(shapes.parse({"--draw.filled"}), "no error");  // the other keys still have their places
  EXPECT_TRUE(shapes.filled);
  EXPECT_EQ(shapes.parse({"--shape.radius", "3"}),
            "--shape.radius is a key of shape.kind circle, not of square");
  EXPECT_EQ(shapes.parse({"--shape.depth", "3"}),
            "unknown flag --shape.depth; shape has kind, side, colour");
  EXPECT_EQ(shapes.parse({"--shape.colour", "blue"}),
            "--shape.colour blue: is not one of red, green");
  EXPECT_EQ(shapes.parse({"--shape.kind", "squere"}),
            "--shape.kind squere: is not one of circle, square; did you mean square?");
  EXPECT_EQ(shapes.parse({"--shape.side", "wide"}), "--shape.side wide: is not a number");
  EXPECT_EQ(shapes.parse({"--shape.side", "auto"}), "no error");
  EXPECT_TRUE(shapes.values.empty());
}

TEST(Options, AFileMayDecideOnOthersUnlessAFlagDoes) {
  Shapes shapes;
  const std::string file = "[shape]\nkind = square\nside = 4\n";
  EXPECT_EQ(shapes.parse({"--shape.side", "5", "--config", "a.ini"}, file), "no error");
  EXPECT_EQ(shapes.values, (OptionValues{{"side", "5"}}));
  EXPECT_EQ(shapes.parse({"--config=a.ini", "--shape.kind", "circle"}, file),
            "a.ini:3: shape.side is a key of shape.kind square, not of circle");
  Shapes read;
  read.options.parse_ini(file, "a.ini");
  EXPECT_EQ(read.options.to_ini(), "[shape]\nkind = square\nside = 4\n\n[draw]\nfilled = false\n");
  EXPECT_EQ(message_of([&] { read.options.parse_ini("[shape]\nkind = cube\n", "b.ini"); }),
            "b.ini:2: shape.kind = cube: is not one of circle, square");
  Shapes taken;
  using Taken = std::set<std::string>;
  EXPECT_EQ(taken.options.take_over(file, "a.ini"), (Taken{"shape.kind", "shape.side"}));
  EXPECT_EQ(taken.values, (OptionValues{{"side", "4"}}));
  EXPECT_EQ(taken.options.take_over("[shape]\nkind = cube\nside = 6\n", "a.ini"),
            Taken{"shape.side"});
}

TEST(Options, HelpListsTheKeysOfEveryValueOfASelector) {
  Shapes shapes;
  EXPECT_EQ(shapes.parse({"--help"}), "no error");
  const std::string help = shapes.options.help();
  const auto at = [&](const std::string& text) { return help.find(text); };
  EXPECT_LT(at("\nshape, with shape.kind circle:\n  --shape.radius N"), at("\n  --shape.colour"));
  EXPECT_LT(at("\n  --shape.colour"), at("\nshape, with shape.kind square:\n  --shape.side X"));
  EXPECT_LT(at("\nshape, with shape.kind square:\n  --shape.side X"), at("red, green"));
  EXPECT_LT(at("red, green"), at("\ndraw:\n"));
  EXPECT_NE(at("\ndraw:\n"), std::string::npos);
  // The others are only described.
  EXPECT_EQ(shapes.options.names().size(), 5u);
  EXPECT_EQ(shapes.options.keys().size(), 5u);
  EXPECT_EQ(shapes.options.keys()[2].only_with, "shape.kind circle");
  EXPECT_EQ(shapes.options.keys()[4].only_with, "");
}

TEST(Options, HelpIsThatOfTheKeysThatAFlagDecidesOn) {
  Shapes shapes;
  EXPECT_EQ(shapes.parse({"--help", "--shape.kind", "square"}), "no error");
  EXPECT_NE(shapes.options.help().find("--shape.side X"), std::string::npos);
  EXPECT_EQ(shapes.options.help().find("--shape.radius"), std::string::npos);
}

TEST(Options, ValuesKeptAsTextsAreReadByTheirTypes) {
  const OptionValues values = {{"radius", "3"}, {"colour", "red"}};
  EXPECT_EQ(option_value<int>(values, "shape", "radius"), 3);
  EXPECT_EQ(option_value<std::string>(values, "shape", "colour"), "red");
  EXPECT_EQ(option_value<double>(values, "shape", "side"), std::nullopt);
  EXPECT_EQ(message_of([&] { option_value<int>(values, "shape", "colour"); }),
            "shape.colour red: is not a whole number");
}

TEST(Options, DeclaringTwiceIsAFaultOfTheProgram) {
  Command command;
  EXPECT_THROW(command.options.add("sample.tokens", command.tokens, "", ""), InternalError);
  EXPECT_THROW(command.options.alias("t", "sample.nothing"), InternalError);
  Shapes shapes;
  EXPECT_THROW(shapes.options.add_selector("shape.other", shapes.kind, shapes.values, "", {},
                                           OnChange::kNotOfRuns,
                                           [](Options&, const std::string&, OptionValues&) {}),
               InternalError);
}

}  // namespace
}  // namespace trireme

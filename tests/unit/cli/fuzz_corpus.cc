// Inputs that once ended with status 70, with a hang, with more than one line, or with a terminal
// that obeyed a name.
#include <fmt/format.h>

#include "fuzz_cases.h"

namespace trireme::fuzz {
namespace {

using Words = std::vector<std::string>;

const std::string kLong(300, 'n');  // beyond what a file may be called

// A run that is small but for what is in `words`.
Case train(Words words) {
  const std::vector<std::string> sizes = {
      "--model.layers=1",           "--model.width=16", "--model.heads=2",
      "--model.context=8",          "--batch.global=2", "--batch.micro=1",
      "--data.train=../given/data", "--run.threads=1"};
  Case made{"corpus", {"train"}, {{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_END_TIME", "1"}}};
  for (const std::string& word : sizes) {
    const std::string name = word.substr(0, word.find('=') + 1);
    bool own = false;
    for (const std::string& other : words) own = own || other.starts_with(name);
    if (!own) made.arguments.push_back(word);
  }
  made.arguments.insert(made.arguments.end(), words.begin(), words.end());
  return made;
}

Case job(Words words) {
  Case made{"corpus", {"job", "single_node", "--data.train=../given/data/train.h5"}};
  made.arguments.insert(made.arguments.end(), words.begin(), words.end());
  return made;
}

}  // namespace

std::vector<Case> corpus() {
  return {
      // Sizes whose memory, or whose products, are beyond all bounds.
      train({"--run.threads=65535"}),
      train({"--model.layers=1073741824"}),
      train({"--model.layers=4096", "--model.width=1048576"}),
      train({"--model.width=2147483646"}),
      train({"--model.hidden=2147483647"}),
      train({"--model.context=16777216", "--model.positions=rotary"}),
      train({"--model.context=2147483647"}),
      train({"--batch.global=16777216", "--batch.micro=16777216"}),
      train({"--batch.global=16777216", "--model.context=1024"}),
      train({"--batch.global=2147483647", "--batch.micro=2147483647"}),
      train({"--run.steps=9223372036854775807"}),
      train({"--eval.batches=9223372036854775807", "--data.validation=../given/data"}),
      train({"--grid.data=2147483647", "--grid.pipeline=2147483647", "--grid.tensor=2147483647"}),
      train({"--optim.lr=1e308"}),
      train({"--comm.timeout=1e300"}),
      job({"--grid.pipeline=4098", "--model.layers=4096", "--nodes=4098", "--tasks-per-node=1"}),
      job({"--model.layers=1073741824"}),
      job({"--batch.global=1073741824", "--batch.micro=1", "--grid.schedule=gpipe"}),
      {"corpus",
       {"scale", "--dry-run", "--output=out", "--data.train=../given/data/train.h5",
        "--nodes=1048576", "--ranks-per-node=2147483647"}},
      {"corpus",
       {"scale", "--dry-run", "--output=out", "--data.train=../given/data/train.h5",
        "--repeats=2147483647"}},
      {"corpus",
       {"scale", "--dry-run", "--output=out", "--data.train=../given/data/train.h5",
        "--nodes=1048576", "--grids=1048576x1048576"}},
      {"corpus", {"bench", "step", "--preset=test-gpt", "--batch=16777216", "--context=16777216"}},
      {"corpus", {"bench", "ops", "--preset=test-gpt", "--batch=16777216", "--context=16777216"}},
      {"corpus",
       {"eval", "--checkpoint=../given/run", "--data=../given/data/validation.h5",
        "--batch.micro=2147483647"}},
      {"corpus",
       {"eval", "--checkpoint=../given/run", "--data=../given/data/validation.h5",
        "--batch.micro=16777216"}},
      // Names that the file system refuses.
      train({"--run.folder=" + kLong}),
      train({"--run.resume=" + kLong}),
      train({"--data.train=" + kLong}),
      train({"--run.folder=" + std::string(3000, '/') + "a\n" + kLong}),
      {"corpus", {"eval", "--checkpoint", kLong}},
      {"corpus", {"generate", "--checkpoint", "a/" + kLong}},
      {"corpus", {"checkpoint", "verify", kLong}},
      {"corpus", {"top", kLong}},
      {"corpus", {"prepare", kLong, "--output", "out"}},
      {"corpus", {"prepare", "../given/text.txt", "--output", kLong}},
      {"corpus", {"prepare", "../given/text.txt", "--output", "out", "--tokenizer", kLong}},
      {"corpus", {"job", kLong}},
      job({"--site", kLong}),
      job({"--data.train=" + kLong}),
      {"corpus", {"scale", "--dry-run", "--data.train=a", "--output", kLong}},
      {"corpus", {"train", "--config", kLong}},
      {"corpus", {"train", "--config", "/dev/zero"}},
      // What a terminal would obey, and values without end.
      {"corpus", {"\x1b]0;title\x07"}},
      {"corpus", {"train", "--\x1b[2J", "1"}},
      {"corpus", {"train", "--run.steps", "1\n2"}},
      {"corpus", {"train", "--run.steps", std::string(100'000, 'x')}},
      {"corpus", {"train", "--" + std::string(100'000, 'x'), "1"}},
      {"corpus", {"checkpoint", "list", "a\nb\x1b[31m"}},
      {"corpus", {"checkpoint", std::string(100'000, 'x')}},
      {"corpus", {"top", "\xff\xfe\n"}},
      {"corpus",
       {"train", "--config=run.ini"},
       {},
       {{"run.ini", "[run]\nfolder = \x1b[2J\nx\x07\n"}}},
      {"corpus",
       {"train", "--config=run.ini"},
       {},
       {{"run.ini", "[run]\n" + std::string(1'000'000, 'k') + " = 1\n"}}},
      {"corpus", {"version"}, {{"TRIREME_ISA", "\x1b[31m"}}},
  };
}

}  // namespace trireme::fuzz

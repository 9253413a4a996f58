#include "fuzz_cases.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/config/config.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/token_shard.h"

#include "cli/commands.h"
#include "fuzz_values.h"
#include "io/hdf5/closing_record.h"
#include "support/sample_pictures.h"

namespace trireme::fuzz {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

const std::string kCheckpoint = "../given/run/checkpoints/step-00000002.h5";

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Words with which a command does its work, as little of it as can be.
const std::vector<Words>& good_commands() {
  static const std::vector<Words> kCommands = {
      {"train", "--data.train=../given/data", "--data.validation=../given/data", "--run.steps=2",
       "--batch.global=2", "--batch.micro=1", "--model.layers=1", "--model.width=16",
       "--model.heads=2", "--model.context=8", "--run.threads=1", "--run.device=cpu",
       "--run.folder=out"},
      {"eval", "--checkpoint=../given/run", "--data=../given/data/validation.h5", "--threads=1",
       "--device=cpu"},
      {"generate", "--checkpoint=../given/run", "--prompt=A line", "--tokens=3", "--threads=1",
       "--device=cpu", "--tokenizer=../given/data/train.h5"},
      {"prepare", "../given/text.txt", "--output=out", "--tokenizer=byte", "--threads=1"},
      {"prepare", "--images=true", "../given/pets", "--output=out", "--threads=1"},
      {"checkpoint", "list", "../given/run"},
      {"checkpoint", "inspect", "../given/run"},
      {"checkpoint", "verify", "../given/run"},
      {"top", "../given/run", "--once"},
      {"job", "single_node", "--data.train=../given/data/train.h5"},
      {"job", "several_nodes", "--data.train=../given/data/train.h5", "--nodes=2"},
      {"job", "sweep", "--data.train=../given/data/train.h5", "--sweep=optim.lr=1e-3,1e-4"},
      {"job", "scaling", "--data.train=../given/data/train.h5", "--nodes=4"},
      {"scale", "--dry-run", "--output=out", "--data.train=../given/data/train.h5",
       "--launcher=mpiexec"},
      {"bench", "comm", "--from=4", "--to=4", "--repeats=1", "--warmup=0", "--device=cpu",
       "--only=barrier"},
      {"bench", "step", "--preset=test-gpt", "--batch=1", "--repeats=1", "--threads=1",
       "--device=cpu"},
      {"data", "list", "../given/data"},
      {"data", "verify", "../given/data"},
      {"data", "inspect", "../given/data/train.h5"},
      {"doctor"},
      {"completion", "bash"},
      {"version"}};
  return kCommands;
}

// A run that ends by itself, whatever its length: at its first step the job's time is over.
std::map<std::string, std::string> short_job() {
  return {{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_END_TIME", "1"}};
}

std::vector<std::string> flags_of(const std::string& command) {
  for (const cli::Command& known : cli::commands()) {
    if (known.name != command) continue;
    std::vector<std::string> names;
    const cli::Work help = known.parse({"--help"});
    for (const OptionDescription& option : help.described->options) {
      names.push_back(option.name);
      names.insert(names.end(), option.aliases.begin(), option.aliases.end());
    }
    return names;
  }
  return {};
}

// Right, and of unbounded work, or harmful to what the other cases are given.
bool is_left_out(const std::string& flag, const std::string& value) {
  if (flag == "submit") return true;   // a scheduler's queue is no place for this
  if (flag == "dry-run") return true;  // a study would start
  const bool written = flag == "run.folder" || flag == "output" || flag == "json";
  if (written && (value.starts_with("../given") || value == "..")) return true;
  if (flag != "tokens" && flag != "repeats" && flag != "warmup" && flag != "to") return false;
  return value.size() > 3 && value[0] != '-';
}

Case flags_case(Draws& draws) {
  Case made{"flags", draws.any_of(good_commands()), short_job()};
  const Words known = flags_of(made.arguments[0]);
  const std::size_t changes = 1 + draws.below(2);
  for (std::size_t i = 0; i < changes; ++i) {
    if (known.empty() || draws.one_in(12)) {  // an argument more, a flag that is none
      const bool flag = draws.one_in(3);
      made.arguments.push_back((flag ? "--" : "") + value(draws));
      continue;
    }
    const std::string flag = draws.any_of(known);
    const std::string text = value(draws);
    if (is_left_out(flag, text)) continue;
    std::erase_if(made.arguments,
                  [&](const std::string& word) { return word.starts_with("--" + flag + "="); });
    if (draws.one_in(2)) {
      made.arguments.push_back("--" + flag + "=" + text);
    } else {
      made.arguments.insert(made.arguments.end(), {"--" + flag, text});
    }
  }
  if (draws.one_in(12)) made.arguments[draws.below(made.arguments.size())] = value(draws);
  return made;
}

using Settings = std::map<std::string, std::string>;  // by key

// A run that is short, and a model that is small.
Settings small_run() {
  Settings settings;
  for (const std::string& word : good_commands()[0]) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    settings[word.substr(2, equals - 2)] = word.substr(equals + 1);
  }
  return settings;
}

// The settings as INI text, a few of the keys with other values, and now and then damaged.
std::string ini_text(Settings settings, const Words& keys, Draws& draws) {
  const std::size_t changes = 1 + draws.below(3);
  for (std::size_t i = 0; i < changes; ++i) {
    std::string text = value(draws);
    if (draws.one_in(3)) text = fmt::format("\"{}\"", text);
    settings[draws.any_of(keys)] = text;
  }
  std::string text;
  for (const auto& [key, own] : settings) {
    const std::size_t dot = key.find('.');
    text += fmt::format("[{}]\n{} = {}\n", key.substr(0, dot),
                        dot == std::string::npos ? key : key.substr(dot + 1), own);
    if (draws.one_in(40)) text += value(draws) + "\n";
  }
  return draws.one_in(4) ? damaged(text, draws) : text;
}

Case ini_case(Draws& draws) {
  if (draws.one_in(3)) {
    const Words keys = {"slurm.partition",
                        "slurm.account",
                        "slurm.qos",
                        "slurm.constraint",
                        "slurm.mpi",
                        "slurm.gres_name",
                        "slurm.memory",
                        "slurm.gpu_memory",
                        "slurm.extra",
                        "environment.modules",
                        "environment.variables",
                        "environment.setup"};
    return {"ini",
            {"job", "single_node", "--data.train=../given/data/train.h5", "--site=site.ini"},
            {},
            {{"site.ini", ini_text({}, keys, draws)}}};
  }
  const std::string command = draws.one_in(4) ? "job" : "train";
  Words words = {command, "--config=run.ini"};
  if (command == "job") words.insert(words.begin() + 1, "single_node");
  return {
      "ini", words, short_job(), {{"run.ini", ini_text(small_run(), flags_of(command), draws)}}};
}

Case environment_case(Draws& draws) {
  static const Words kNames = {"TRIREME_ISA",
                               "TRIREME_MATMUL",
                               "TRIREME_JOB",
                               "SLURM_JOB_ID",
                               "SLURM_JOB_END_TIME",
                               "SLURM_CPUS_PER_TASK",
                               "SLURM_CPUS_ON_NODE",
                               "SLURM_RESTART_COUNT",
                               "SLURM_JOB_NUM_NODES",
                               "SLURM_NTASKS",
                               "SLURMD_NODENAME",
                               "SLURM_STEP_GPUS",
                               "CUDA_VISIBLE_DEVICES",
                               "OMP_NUM_THREADS",
                               "TERM",
                               "LANG",
                               "LC_ALL",
                               "CUDA_HOME",
                               "TMPDIR"};
  Case made{"environment", draws.any_of(good_commands()), short_job()};
  for (std::size_t i = 0; i <= draws.below(3); ++i) {
    made.environment[draws.any_of(kNames)] = value(draws);
  }
  return made;
}

const std::string kLease =
    R"({"job": "1", "restarts": 0, "host": "elsewhere", "pid": 1, "process_start": 5,)"
    R"( "heartbeat": 1700000000, "generation": 1})";

// JSON with one of its values replaced by another.
std::string other_value(const std::string& json, Draws& draws) {
  std::vector<std::size_t> colons;
  for (std::size_t at = json.find(':'); at != std::string::npos; at = json.find(':', at + 1)) {
    colons.push_back(at + 1);
  }
  if (colons.empty()) return json;
  const std::size_t begin = draws.any_of(colons);
  const std::size_t end = std::min(json.find_first_of(",}\n", begin), json.size());
  std::string text = number(draws);
  if (draws.one_in(3)) text = '"' + value(draws) + '"';
  if (draws.one_in(6)) text = "null";
  if (draws.one_in(12)) text = std::string(100'000, '[');
  return json.substr(0, begin) + text + json.substr(end);
}

Case run_folder_case(Draws& draws) {
  Case made{"run_folder", {"top", "run", "--once"}};
  const std::size_t target = draws.below(5);
  const Words names = {"metrics.jsonl", "events.jsonl", "ranks.json", "config.ini", "lease"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::string bytes =
        names[i] == "lease" ? kLease : bytes_of("../given/run/" + names[i]);  // see make_case
    if (names[i] == "ranks.json" && bytes.empty()) {
      bytes = R"({"first_step":1,"last_step":2,"gather_s":0.1,"stragglers":["a"],"nodes":)"
              R"([{"host":"h","link_bytes_per_s":0}],"columns":["node"],"ranks":)"
              R"([[0,0,0,0,2,0.1,0.0,0.0,1000000,1.5]]})";
    }
    if (names[i] == "lease" && draws.one_in(2)) bytes.clear();
    if (i == target) bytes = draws.one_in(2) ? damaged(bytes, draws) : other_value(bytes, draws);
    if (!bytes.empty()) made.files.emplace_back("run/" + names[i], bytes);
  }
  return made;
}

// Every command that takes a checkpoint.
Words reader_of_checkpoint(Draws& draws) {
  switch (draws.below(5)) {
    case 0:
      return {"checkpoint", "list", "case.h5"};
    case 1:
      return {"checkpoint", "inspect", "case.h5"};
    case 2:
      return {"checkpoint", "verify", "case.h5"};
    case 3: {
      Words words = good_commands()[1 + draws.below(2)];
      words[1] = "--checkpoint=case.h5";
      return words;
    }
    default: {
      Words words = good_commands()[0];
      words.push_back("--run.resume=case.h5");
      return words;
    }
  }
}

// The checkpoint with an attribute of its own, and a closing record that is right for it.
void write_with_attribute(const std::string& name, const std::string& text, bool is_number) {
  std::vector<ByteRange> ranges;
  std::int64_t end = 0;
  {
    const PosixFile file(kCheckpoint, O_RDONLY);
    ranges = check_record(file).value();
    end = file.size() - 64 - 16 * std::ssize(ranges);
  }
  fs::copy_file(kCheckpoint, "case.h5");
  fs::resize_file("case.h5", static_cast<std::uintmax_t>(end));
  {
    hdf5::File file = hdf5::File::open_to_write("case.h5");
    if (is_number) {
      std::int64_t number = 0;
      std::istringstream(text) >> number;
      file.set_attribute("/", name, number);
    } else {
      file.set_attribute("/", name, text);
    }
    file.close();
  }
  PosixFile file("case.h5", O_RDWR);
  append_record(file, ranges);
}

Case checkpoint_case(Draws& draws) {
  Case made{"checkpoint", reader_of_checkpoint(draws), short_job()};
  const std::uint64_t seed = draws.below(1u << 30);
  if (draws.one_in(2)) {
    made.before = [seed] {
      Draws own(seed);
      write("case.h5", damaged(bytes_of(kCheckpoint), own));
    };
    return made;
  }
  made.before = [seed] {
    Draws own(seed);
    static const Words kNumbers = {"step", "samples", "seed", "format_version"};
    static const Words kTexts = {"config", "config", "config", "tokenizer", "grid", "own"};
    if (own.one_in(2)) {
      write_with_attribute(own.any_of(kNumbers), number(own), !own.one_in(8));
      return;
    }
    const std::string name = own.any_of(kTexts);
    std::string text = value(own);
    if (name == "config" && !own.one_in(4)) text = ini_text(small_run(), flags_of("train"), own);
    constexpr std::size_t kMostBytes = 10'000;  // HDF5 takes 64 KiB with all others
    std::erase(text, '\0');                     // and no zero byte
    write_with_attribute(name, text.substr(0, kMostBytes), own.one_in(8));
  };
  return made;
}

Case tokenizer_case(Draws& draws) {
  Case made{
      "tokenizer",
      {"prepare", "../given/text.txt", "--output=out", "--tokenizer=case.model", "--threads=1"}};
  const std::uint64_t seed = draws.below(1u << 30);
  made.before = [seed] {
    Draws own(seed);
    write("case.model", damaged(bytes_of("../given/bpe.model"), own));
  };
  return made;
}

Case tokenizer_file_case(Draws& draws) {
  Case made{
      "tokenizer_file",
      {"prepare", "../given/text.txt", "--output=out", "--tokenizer=case.json", "--threads=1"}};
  const std::string name = draws.one_in(2) ? "pairs" : "words";
  const std::uint64_t seed = draws.below(1u << 30);
  made.before = [seed, name] {
    Draws own(seed);
    write("case.json", damaged(bytes_of("../given/" + name + ".json"), own));
  };
  return made;
}

Case shard_case(Draws& draws) {
  static const std::vector<Words> kReaders = {
      {"data", "list", "case.h5"},
      {"data", "inspect", "case.h5"},
      {"data", "verify", "case.h5"},
      {"eval", "--checkpoint=../given/run", "--data=case.h5", "--threads=1", "--device=cpu"},
      {"generate", "--checkpoint=../given/run", "--prompt=A", "--tokens=2", "--threads=1",
       "--device=cpu", "--tokenizer=case.h5"}};
  Case made{"shard", draws.any_of(kReaders)};
  if (draws.one_in(3)) {
    made = {"shard", good_commands()[0], short_job()};
    made.arguments[1] = "--data.train=case.h5";
  }
  const std::uint64_t seed = draws.below(1u << 30);
  made.before = [seed] {
    Draws own(seed);
    write("case.h5", damaged(bytes_of("../given/data/train.h5"), own));
  };
  return made;
}

// A folder of pictures, or an archive of them, of which a file is damaged.
Case pictures_case(Draws& draws) {
  using testing::JpegKind;
  using testing::PngKind;
  static const std::vector<JpegKind> kJpegs = {JpegKind::kColour, JpegKind::kGrey, JpegKind::kCmyk};
  static const std::vector<PngKind> kPngs = {PngKind::kRgb, PngKind::kGrey, PngKind::kRgba,
                                             PngKind::kRgb16, PngKind::kPalette};
  constexpr PictureSize kSize{8, 8};
  testing::Files files;
  for (unsigned i = 0; i < 4; ++i) {
    const bool jpeg = draws.one_in(2);
    const auto name = fmt::format("pets/{}/{}.{}", i < 2 ? "cat" : "dog", i, jpeg ? "jpg" : "png");
    files.emplace_back(name, jpeg ? testing::make_jpeg(kSize, i, draws.any_of(kJpegs))
                                  : testing::make_png(kSize, i, draws.any_of(kPngs)));
  }
  Case made{"pictures", {"prepare", "--images=true", "pets", "--output=out", "--threads=1"}};
  if (draws.one_in(2)) made.arguments.push_back("--size=5x9");
  if (draws.one_in(2)) made.arguments.push_back("--skip-bad=true");
  if (draws.one_in(4)) made.arguments.push_back("--validation=class:0.5");
  switch (draws.below(3)) {
    case 0: {
      std::string& bytes = files[draws.below(files.size())].second;
      bytes = damaged(bytes, draws);
      made.files = files;
      return made;
    }
    case 1:
      made.files = {{"pets", damaged(testing::make_tar(files), draws)}};
      return made;
    default:
      made.files = {{"pets", damaged(testing::compressed(testing::make_tar(files), "xz"), draws)}};
      return made;
  }
}

Case image_shard_case(Draws& draws) {
  static const Words kActions = {"list", "inspect", "verify"};
  Case made{"image_shard", {"data", draws.any_of(kActions), "case.h5"}};
  const std::uint64_t seed = draws.below(1u << 30);
  made.before = [seed] {
    Draws own(seed);
    write("case.h5", damaged(bytes_of("../given/images/train.h5"), own));
  };
  return made;
}

struct Kind {
  std::string name;
  Case (*make)(Draws& draws);
};

const std::vector<Kind>& table() {
  static const std::vector<Kind> kTable = {{"flags", flags_case},
                                           {"ini", ini_case},
                                           {"environment", environment_case},
                                           {"run_folder", run_folder_case},
                                           {"checkpoint", checkpoint_case},
                                           {"tokenizer", tokenizer_case},
                                           {"tokenizer_file", tokenizer_file_case},
                                           {"shard", shard_case},
                                           {"pictures", pictures_case},
                                           {"image_shard", image_shard_case}};
  return kTable;
}

}  // namespace

std::vector<std::string> kinds() {
  std::vector<std::string> names;
  for (const Kind& kind : table()) names.push_back(kind.name);
  return names;
}

Case make_case(const std::string& name, Draws& draws) {
  for (const Kind& kind : table()) {
    if (kind.name == name) return kind.make(draws);
  }
  throw InternalError("no kind of case is called " + name);
}

void write_stored_tokenizer(const std::string& shard, const std::string& model) {
  write(model, read_token_shard_info(shard).tokenizer_model);
}

}  // namespace trireme::fuzz

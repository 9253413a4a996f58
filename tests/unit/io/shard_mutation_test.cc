// shard_mutation_test [SHARD]...: damages shards in every way that is one byte or one cut, and
// reads each in another process. A read must end with a DataError, or give what the whole
// shard gives; none may crash or go on for ever. Without arguments the shards are those that
// TokenShardWriter writes, and what earlier versions of it wrote.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "trireme/base/error.h"
#include "trireme/io/dataset.h"
#include "trireme/io/hdf5.h"

#include "support/temporary_folder.h"

namespace {

using namespace trireme;
namespace fs = std::filesystem;

constexpr unsigned kSeconds = 10;  // far more than a read takes on a busy machine

enum Outcome : unsigned char { kNotTried, kTrying, kRefused, kSame, kOther, kFault, kSignal };

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// All that a run learns from a shard.
std::string reading(const std::string& path) {
  const auto dataset = TokenDataset::open({{{path}}, "", 8, 1, SampleOrder::kSequential});
  std::vector<std::uint64_t> all(dataset->samples());
  std::iota(all.begin(), all.end(), 0);
  const TokenBatch batch = dataset->read(all);
  const TokenShardInfo& info = dataset->shards().front();
  std::string text =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", info.tokens, info.documents, info.original_bytes,
                  info.vocabulary, info.end_of_text, info.tokenizer_kind, info.tokenizer_model,
                  info.source, info.split, info.checksum);
  for (const std::int32_t token : batch.targets) text += fmt::format(" {}", token);
  return text;
}

struct Case {
  std::size_t at;  // the byte, or, where mask is 0, the size to which the shard is cut
  unsigned char mask;
};

class Mutations {
 public:
  explicit Mutations(const std::string& path) : path_(path), bytes_(contents(path)) {
    whole_ = reading(path);
    spare_ = (folder_.path() / "damaged.h5").string();
    const TokenShardInfo info = read_token_shard_info(path_);
    const bool open_tokens =
        info.format_version == 1 && info.data_offset >= 0;  // nothing checks them
    const auto begin = open_tokens ? static_cast<std::size_t>(info.data_offset) : 0;
    const auto count = open_tokens ? static_cast<std::size_t>(info.tokens * info.token_bytes) : 0;
    for (std::size_t at = 0; at < bytes_.size(); ++at) {
      if (at >= begin && at < begin + count) continue;
      constexpr unsigned char kMasks[] = {0x01, 0xff, 0x80};
      cases_.push_back({at, kMasks[at % 3]});
    }
    for (std::size_t size = 0; size < bytes_.size(); size += 1 + bytes_.size() / 400) {
      cases_.push_back({size, 0});
    }
    for (std::size_t cut = 1; cut < 80; ++cut) cases_.push_back({bytes_.size() - cut, 0});
    outcomes_ = static_cast<unsigned char*>(
        ::mmap(nullptr, cases_.size(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  }
  ~Mutations() { ::munmap(outcomes_, cases_.size()); }

  // `other_is_bad`: whether each byte is protected, so that none may read as something else.
  bool run(bool other_is_bad) {
    for (std::size_t next = 0; next < cases_.size();) {
      const int status = try_from(next);
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) break;
      while (outcomes_[next] != kTrying) ++next;
      outcomes_[next++] = kSignal;
    }
    const auto many = [&](Outcome outcome) {
      return std::count(outcomes_, outcomes_ + cases_.size(), outcome);
    };
    fmt::print("{}: {} bytes, {} cases: {} refused, {} the same, {} other, {} bad\n", path_,
               bytes_.size(), cases_.size(), many(kRefused), many(kSame), many(kOther),
               many(kFault) + many(kSignal));
    bool good = many(kRefused) > 0;  // otherwise nothing was tried
    for (std::size_t i = 0; i < cases_.size(); ++i) {
      const unsigned char outcome = outcomes_[i];
      if (outcome == kRefused || outcome == kSame) continue;
      if (outcome == kOther && !other_is_bad) continue;
      // bad input: a shard whose header is damaged, or that was cut | ...: damaged: its headers do
      // not match their checksum; ...: its last 24 bytes are neither HDF5 nor a closing record | 3
      fmt::print("  {} {} {:#x}: {}\n", cases_[i].mask ? "byte" : "cut to", cases_[i].at,
                 cases_[i].mask,
                 outcome == kSignal  ? "crashes, or does not end"
                 : outcome == kOther ? "reads as something else"
                                     : "is not refused as damaged data");
      good = false;
    }
    return good;
  }

 private:
  // Tries the cases from this one on in a process of their own; its wait status.
  int try_from(std::size_t first) {
    const pid_t child = ::fork();
    if (child == 0) {
      write(bytes_);
      for (std::size_t i = first; i < cases_.size(); ++i) {
        ::alarm(kSeconds);
        outcomes_[i] = kTrying;
        outcomes_[i] = outcome_of(cases_[i]);
      }
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }

  void write(std::string_view bytes) const { std::ofstream(spare_, std::ios::binary) << bytes; }

  Outcome outcome_of(const Case& damage) const {
    if (damage.mask == 0) {
      write(std::string_view(bytes_).substr(0, damage.at));
      const Outcome outcome = outcome_of_reading();
      write(bytes_);
      return outcome;
    }
    // A byte is written in place: to write the whole file each time takes many times longer.
    std::fstream file(spare_, std::ios::binary | std::ios::in | std::ios::out);
    const auto put = [&](char byte) {
      file.seekp(static_cast<std::streamoff>(damage.at));
      file.put(byte);
      file.flush();
    };
    put(static_cast<char>(bytes_[damage.at] ^ damage.mask));
    const Outcome outcome = outcome_of_reading();
    put(bytes_[damage.at]);
    return outcome;
  }

  Outcome outcome_of_reading() const {
    try {
      return reading(spare_) == whole_ ? kSame : kOther;
    } catch (const DataError& error) {
      return std::string_view(error.what()).find('\n') == std::string_view::npos ? kRefused
                                                                                 : kFault;
    } catch (...) {
      return kFault;
    }
  }

  std::string path_, bytes_, whole_, spare_;
  std::vector<Case> cases_;
  unsigned char* outcomes_;
  trireme::testing::TemporaryFolder folder_;
};

std::string written(const std::string& path) {
  TokenShardWriter writer(path, make_byte_tokenizer(), "train", "made up");
  std::vector<std::int32_t> tokens(100);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i) + 20;
  tokens[49] = tokens[99] = 256;
  writer.append(tokens, std::vector<std::uint64_t>{0, 50}, 98);
  writer.commit();
  return path;
}

// The same shard as format version 1 had it: strings of variable length, no checksums of blocks,
// no closing record.
std::string written_before(const std::string& path) {
  const std::string now = written(path + ".now");
  const hdf5::File from = hdf5::File::open(now);
  hdf5::File file = hdf5::File::create(path);
  const auto tokens = from.dataset("/tokens").read<std::uint16_t>();
  const auto documents = from.dataset("/documents").read<std::uint64_t>();
  file.create_dataset("/tokens", hdf5::ElementType::kU16, {std::ssize(tokens)})
      .write(0, std::span(tokens));
  file.create_dataset("/documents", hdf5::ElementType::kU64, {std::ssize(documents)})
      .write(0, std::span(documents));
  file.create_dataset("/tokenizer", hdf5::ElementType::kU8, {0});
  for (const char* name : {"tokenizer", "source", "split", "checksum"}) {
    file.set_attribute("/", name, from.string_attribute("/", name));
  }
  file.set_attribute("/tokenizer", "checksum", from.string_attribute("/tokenizer", "checksum"));
  for (const char* name : {"tokens", "documents", "original_bytes", "vocabulary", "end_of_text"}) {
    file.set_attribute("/", name, from.integer_attribute("/", name));
  }
  file.set_attribute("/", "format_version", std::int64_t{1});
  file.close();
  return path;
}

// A shard as h5repack leaves it: without the closing record.
std::string without_record(const std::string& path) {
  written(path);
  const std::int64_t bytes = hdf5::File::open(path).hdf5_bytes();
  fs::resize_file(path, static_cast<std::uintmax_t>(bytes));
  return path;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const trireme::testing::TemporaryFolder folder;
    const auto named = [&](const char* name) { return (folder.path() / name).string(); };
    bool good = true;
    for (int i = 1; i < argc; ++i) good = Mutations(argv[i]).run(false) && good;
    if (argc > 1) return good ? 0 : 1;
    good = Mutations(written(named("now.h5"))).run(true) && good;
    good = Mutations(without_record(named("bare.h5"))).run(false) && good;
    good = Mutations(written_before(named("before.h5"))).run(false) && good;
    return good ? 0 : 1;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

// What stands in the folder of shards: after damage, on a full disk, and beside what another start
// left or writes.
#include <csignal>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trireme/io/locked_file.h"

#include "support/prepare_testing.h"
#include "support/sample_text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

using testing::contents;
using testing::expect_fault;
using testing::Prepare;
using testing::Texts;

TEST_F(Prepare, AnOlderValidationShardDoesNotStay) {
  PrepareOptions options = this->options({write("a", "some text")});
  options.validation = parse_validation_split("tail:4");
  prepare(options);
  EXPECT_TRUE(fs::exists(output() + "/validation.h5"));
  options.validation = {};
  prepare(options);
  EXPECT_FALSE(fs::exists(output() + "/validation.h5"));
}

TEST_F(Prepare, DamageIsFound) {
  const std::string text = testing::sample_text(5000, 1);
  PrepareOptions options = this->options({write("a", text)});
  const TokenShardInfo info = prepare(options).train;
  std::fstream file(info.path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(info.data_offset + 2 * 1234);
  file.put(static_cast<char>(text[1234] ^ 1));
  file.close();
  EXPECT_THROW(verify_token_shard(info.path), DataError);
}

TEST_F(Prepare, RefusesBadOutput) {
  PrepareOptions options = this->options({write("a", testing::sample_text(300000, 1))});
  options.output = write("file", "");
  expect_fault<RunFolderError>(options, options.output);
  options.output += "/x/y";
  expect_fault<RunFolderError>(options, "file/x/y: cannot be made: Not a directory");
  options.output = "/proc/no/such";
  expect_fault<RunFolderError>(options, "/proc/no: cannot be made");
}

TEST_F(Prepare, RefusesAFullOutput) {
  PrepareOptions options = this->options({write("a", testing::sample_text(3000000, 1))});
  // A file size limit stands in for a full disk: the spooled tokens, or the shard itself, end
  // there.
  for (const rlim_t limit : {rlim_t{1} << 20, rlim_t{6} * 1000 * 1000 + 1000}) {
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit old{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
    const rlimit small{limit, old.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_fault<RunFolderError>(options, "train.h5");
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
    EXPECT_FALSE(fs::exists(output()));
  }
}

// A folder that a prepare has made goes with it where it fails; one that was there stays.
TEST_F(Prepare, AFaultLeavesTheFolderThatWasThere) {
  PrepareOptions options = this->options({write("a", "some text")});
  options.validation = parse_validation_split("tail:9");
  fs::create_directory(output());
  for (const char* below : {"", "/new", "/new/deep/"}) {
    options.output = output() + below;
    expect_fault<DataError>(options, "takes all");
    EXPECT_TRUE(fs::is_empty(output())) << below;
  }
}

// The names that files get and lose in a folder while this object lives, in their order.
class Renames {
 public:
  explicit Renames(const std::string& folder) : descriptor_(::inotify_init1(IN_NONBLOCK)) {
    ::inotify_add_watch(descriptor_, folder.c_str(), IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO);
  }
  ~Renames() { ::close(descriptor_); }
  Texts of_shards() const {
    Texts seen;
    alignas(inotify_event) char events[16384];
    const ssize_t bytes = ::read(descriptor_, events, sizeof(events));
    for (ssize_t at = 0; at < bytes;) {
      const auto* event = reinterpret_cast<const inotify_event*>(events + at);
      const std::string name = event->name;
      if (name.ends_with(".h5")) seen.push_back((event->mask & IN_MOVED_TO ? "+" : "-") + name);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
    }
    return seen;
  }

 private:
  int descriptor_;
};

TEST_F(Prepare, NoTrainingShardStandsBesideOtherHeldOutData) {
  PrepareOptions options = this->options({write("a", testing::sample_text(10000, 1))});
  options.validation = parse_validation_split("tail:1000");
  prepare(options);
  {
    const Renames renames(output());
    prepare(options);
    EXPECT_EQ(renames.of_shards(),
              (Texts{"-train.h5", "-validation.h5", "+validation.h5", "+train.h5"}));
  }
  options.validation = {};
  const Renames renames(output());
  prepare(options);
  EXPECT_EQ(renames.of_shards(), (Texts{"-train.h5", "-validation.h5", "+train.h5"}));
}

TEST_F(Prepare, AFullDiskLeavesTheEarlierSplit) {
  const std::string text = write("a", testing::sample_text(3000000, 1));
  PrepareOptions options = this->options({text});
  options.document_separator = ".";
  options.validation = parse_validation_split("hash:0.1");
  prepare(options);
  const std::string train = contents(output() + "/train.h5");
  const std::string validation = contents(output() + "/validation.h5");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const rlimit small{static_cast<rlim_t>(train.size() / 2), old.rlim_max};
  options.seed = 2;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  expect_fault<RunFolderError>(options, "train.h5");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old), 0);
  EXPECT_EQ(contents(output() + "/train.h5"), train);
  EXPECT_EQ(contents(output() + "/validation.h5"), validation);
  EXPECT_EQ(std::distance(fs::directory_iterator(output()), fs::directory_iterator()), 2);
}

TEST_F(Prepare, TheSecondOfTwoAtOnceIsRefused) {
  const PrepareOptions options = this->options({write("a", "some text")});
  fs::create_directories(output());
  {
    LockedFile other(output() + "/.writing", "busy");
    other.note("train.h5\n");
    expect_fault<RunFolderError>(options, "another trireme is writing files there");
    expect_fault<RunFolderError>(options, fmt::format("(process {} on ", ::getpid()));
  }
  prepare(options);
}

TEST_F(Prepare, ARepeatReplacesWhatAKilledOneLeft) {
  const PrepareOptions options = this->options({write("a", "some text")});
  write("out/.writing", "process 1 on nowhere\nvalidation.h5\ntrain.h5\n");
  write("out/validation.h5.partial", "cut");
  write("out/train.h5.tokens.partial", "cut");
  write("out/validation.h5", "of the killed one");
  const std::string other = write("other", "of others");
  fs::create_symlink(other, output() + "/train.h5.partial");
  prepare(options);
  EXPECT_EQ(contents(other), "of others");
  ASSERT_EQ(std::distance(fs::directory_iterator(output()), fs::directory_iterator()), 1);
  verify_token_shard(output() + "/train.h5");
}

}  // namespace
}  // namespace trireme

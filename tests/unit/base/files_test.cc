#include "trireme/base/files.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "trireme/base/error.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr ExitStatus kStatus = ExitStatus::kRunFolder;

class FilesTest : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }
  std::string make(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  // The message of what `body` throws, which must be of kStatus and Cause::kUnreadable.
  template <class Body>
  std::string refusal(const Body& body) const {
    try {
      body();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), kStatus);
      EXPECT_TRUE(error.unreadable()) << error.what();
      return error.what();
    }
    return "nothing was thrown";
  }

  testing::TemporaryFolder folder_;
};

TEST_F(FilesTest, WhatIsThereHasAKindAndASize) {
  make("file", "12345");
  EXPECT_TRUE(look_at(path("file"), kStatus).is_file());
  EXPECT_EQ(look_at(path("file"), kStatus).bytes, 5);
  EXPECT_TRUE(look_at(folder_.path().string(), kStatus).is_folder());
  EXPECT_EQ(look_at("/dev/null", kStatus).kind, FileKind::kOther);
}

TEST_F(FilesTest, AbsentIsANameThatDoesNotExistInAFolderThatDoes) {
  EXPECT_FALSE(look_at(path("none"), kStatus).is_there());
  EXPECT_FALSE(read_if_there(path("none"), kStatus));
  EXPECT_FALSE(names_in(path("none"), kStatus));
  EXPECT_FALSE(FileReader::open_if_there(path("none"), kStatus));
  EXPECT_FALSE(remove_if_there(path("none"), kStatus));
  EXPECT_NE(refusal([&] { look_at(path("none/file"), kStatus); }).find("its folder does not exist"),
            std::string::npos);
  EXPECT_FALSE(look_ahead(path("none/file"), kStatus).is_there());
}

// Each way in which the system can fail to show a file that tests can make as root.
TEST_F(FilesTest, WhatTheSystemCannotShowIsNotAbsent) {
  make("file", "text");
  fs::create_symlink("loop", path("loop"));
  fs::create_symlink("nowhere", path("dangling"));
  const std::string long_name(300, 'n');
  for (const std::string& name : {std::string("file/below"), std::string("loop"),
                                  std::string("loop/below"), std::string("dangling"), long_name}) {
    const std::string at = path(name);
    EXPECT_NE(refusal([&] { look_at(at, kStatus); }).find(at), std::string::npos) << name;
    EXPECT_NE(refusal([&] { look_ahead(at, kStatus); }).find(at), std::string::npos) << name;
    EXPECT_NE(refusal([&] { read_if_there(at, kStatus); }).find(at), std::string::npos) << name;
    EXPECT_NE(refusal([&] { names_in(at, kStatus); }).find(at), std::string::npos) << name;
    EXPECT_NE(refusal([&] { same_file(at, path("file"), kStatus); }).find(at), std::string::npos);
  }
  EXPECT_NE(refusal([&] { names_in(path("file"), kStatus); }).find("Not a directory"),
            std::string::npos);
  EXPECT_NE(refusal([&] { read_if_there(folder_.path().string(), kStatus); }).find("directory"),
            std::string::npos);
}

TEST_F(FilesTest, InputOutputErrorsAreTriedAgainAndOthersAreNot) {
  int calls = 0;
  const auto fails = [&](int times, int reason) {
    calls = 0;
    return patiently([&, times, reason]() -> long {
      if (++calls > times) return 7;
      errno = reason;
      return -1;
    });
  };
  EXPECT_EQ(fails(3, EIO), 7);
  EXPECT_EQ(fails(2, ESTALE), 7);
  EXPECT_EQ(fails(2, EINTR), 7);
  EXPECT_EQ(fails(1, EACCES), -1);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(errno, EACCES);
  limit_file_patience(std::chrono::milliseconds(0));
  EXPECT_EQ(fails(1'000'000, EIO), -1);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(errno, EIO);
  limit_file_patience(std::chrono::hours(1));
}

TEST_F(FilesTest, AFolderIsListedWithWhateverNamesItHolds) {
  fs::create_directory(path("inner"));
  make("inner/b", "");
  make("inner/a\nb", "");
  make("inner/.hidden", "");
  EXPECT_EQ(names_in(path("inner"), kStatus), (std::vector<std::string>{".hidden", "a\nb", "b"}));
}

TEST_F(FilesTest, LinesComeWholeWhateverTheirLength) {
  const std::string long_line(200'000, 'x');
  FileReader reader(make("lines", "one\n\n" + long_line + "\nno end"), kStatus);
  std::string line;
  bool whole = false;
  ASSERT_TRUE(reader.line(line, &whole));
  EXPECT_EQ(line, "one");
  EXPECT_EQ(reader.position(), 4);
  ASSERT_TRUE(reader.line(line, &whole));
  EXPECT_EQ(line, "");
  ASSERT_TRUE(reader.line(line, &whole));
  EXPECT_EQ(line, long_line);
  EXPECT_TRUE(whole);
  ASSERT_TRUE(reader.line(line, &whole));
  EXPECT_EQ(line, "no end");
  EXPECT_FALSE(whole);
  EXPECT_FALSE(reader.line(line));
  reader.seek(4 + 1 + 199'999);
  ASSERT_TRUE(reader.line(line));
  EXPECT_EQ(line, "x");
}

TEST_F(FilesTest, ALineThatNeverEndsIsNotReadWhole) {
  FileReader reader(make("endless", std::string(3'000'000, 'x')), kStatus);
  std::string line;
  ASSERT_TRUE(reader.line(line, nullptr, 1000));
  EXPECT_GT(line.size(), 1000u);
  EXPECT_LT(line.size(), 1'000'000u);
}

TEST_F(FilesTest, AFileThatIsTooLongIsRefused) {
  EXPECT_EQ(read_file(make("file", std::string(1000, 'a')), kStatus, 1000).size(), 1000u);
  EXPECT_THROW(read_file(path("file"), kStatus, 999), RunFolderError);
}

TEST_F(FilesTest, APipeIsReadUntilItsWriterEnds) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path("pipe")) << "from a pipe"; });
  EXPECT_EQ(read_file(path("pipe"), kStatus), "from a pipe");
  writer.join();
  EXPECT_EQ(read_file("/dev/null", kStatus), "");
}

TEST_F(FilesTest, FoldersAreMadeWithThoseAbove) {
  make_folders(path("a/b/c/"), kStatus);
  make_folders(path("a/b/c"), kStatus);
  EXPECT_TRUE(fs::is_directory(path("a/b/c")));
  make("file", "");
  EXPECT_NE(refusal([&] { make_folders(path("file/d"), kStatus); }).find(path("file")),
            std::string::npos);
  EXPECT_NE(refusal([&] { make_folders(path("file"), kStatus); }).find("cannot be made"),
            std::string::npos);
}

TEST_F(FilesTest, NamesOfTheSameFileAreTold) {
  make("file", "");
  fs::create_hard_link(path("file"), path("other"));
  fs::create_symlink("file", path("link"));
  make("third", "");
  EXPECT_TRUE(same_file(path("file"), path("other"), kStatus));
  EXPECT_TRUE(same_file(path("file"), path("link"), kStatus));
  EXPECT_FALSE(same_file(path("file"), path("third"), kStatus));
  EXPECT_FALSE(same_file(path("file"), path("none"), kStatus));
}

}  // namespace
}  // namespace trireme

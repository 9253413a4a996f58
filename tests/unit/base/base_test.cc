#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trireme/base/caught.h"
#include "trireme/base/dynamic_library.h"
#include "trireme/base/error.h"
#include "trireme/base/installed_file.h"
#include "trireme/base/json.h"
#include "trireme/base/kernel_files.h"
#include "trireme/base/name_patterns.h"
#include "trireme/base/philox.h"
#include "trireme/base/printable.h"
#include "trireme/base/running_clock.h"
#include "trireme/base/shape.h"
#include "trireme/base/small_file.h"
#include "trireme/base/text.h"
#include "trireme/base/thread.h"
#include "trireme/base/upper_median.h"

namespace trireme {
namespace {

// Known answers of the reference implementation (Random123, kat_vectors: philox4x32 10).
// A clock that the test sets.
struct ScriptedClock {
  std::int64_t ns = 0;
  RunningClock clock{[this] { return ns; }};

  void run_until(double seconds) {
    while (ns < static_cast<std::int64_t>(seconds * 1e9)) {
      ns += 100'000'000;
      clock.look();
    }
  }
  void jump_to(double seconds) { ns = static_cast<std::int64_t>(seconds * 1e9); }
};

TEST(RunningClock, CountsWhileSomebodyLooks) {
  ScriptedClock script;
  script.run_until(100);
  EXPECT_NEAR(script.clock.seconds(), 100, 1e-6);
  EXPECT_NEAR(script.clock.seconds_since(40'000'000'000), 60, 1e-6);
}

TEST(RunningClock, StandsStillWhileNobodyDoes) {
  ScriptedClock script;
  script.run_until(10);
  script.jump_to(3610);
  EXPECT_NEAR(script.clock.seconds(), 10 + RunningClock::kLongestGap, 1e-6);
  script.run_until(3620);
  script.jump_to(10'000);
  // Begun before both pauses, between them, and after them.
  EXPECT_NEAR(script.clock.seconds_since(5'000'000'000), 15 + 2 * RunningClock::kLongestGap, 1e-6);
  EXPECT_NEAR(script.clock.seconds_since(3'615'000'000'000), 5 + RunningClock::kLongestGap, 1e-6);
  EXPECT_NEAR(script.clock.seconds_since(10'000'000'000'000), 0, 1e-6);
  script.run_until(10'001);
  EXPECT_NEAR(script.clock.seconds_since(10'000'000'000'000), 1, 1e-6);
}

// On a machine that is short of cores time still goes on, slower.
TEST(RunningClock, AWatcherThatIsAlwaysLateSeesTimePass) {
  ScriptedClock script;
  for (int i = 1; i <= 100; ++i) {
    script.jump_to(2.0 * i);
    script.clock.look();
  }
  EXPECT_NEAR(script.clock.seconds(), 100 * RunningClock::kLongestGap, 1e-6);
}

TEST(Thread, WhatItsBodyThrowsEndsTheProcessByALine) {
  EXPECT_EXIT(start_thread("a test", [] { throw std::bad_alloc(); }).join(),
              testing::ExitedWithCode(71), "^trireme: out of memory");
  EXPECT_EXIT(start_thread("a test", [] { throw DataError("no data"); }).join(),
              testing::ExitedWithCode(3), "^trireme: no data\n$");
}

TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, 0), (Philox4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Philox4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Philox4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalHasUnitMoments) {
  const std::uint64_t key = philox_key(1, "test");
  double sum = 0, squares = 0;
  constexpr int kCount = 100000;
  for (int i = 0; i < kCount; ++i) {
    const double x = philox_normal_at(key, static_cast<std::uint64_t>(i));
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.015);  // 4.7 standard errors
  EXPECT_NEAR(squares / kCount, 1.0, 0.025);
}

// The formula written out once more: a compiler or a vectorised form must not change a bit.
TEST(Philox, ARunOfNormalsHasTheBitsOfEach) {
  const std::uint64_t key = philox_key(3, "test");
  for (const std::uint64_t first :
       {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{6}, (std::uint64_t{1} << 34) - 5}) {
    std::vector<float> run(1003);
    philox_normals(key, first, run);
    for (std::size_t i = 0; i < run.size(); ++i) {
      const std::uint64_t index = first + i, block = index / 4;
      EXPECT_EQ(run[i], philox_normal_at(key, index)) << index;
      const Philox4 draw = philox4x32(
          {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 1, 0}, key);
      const std::size_t pair = index % 4 / 2 * 2;
      const double radius = std::sqrt(-2.0 * std::log(double{philox_uniform(draw[pair])}));
      const volatile double angle =
          2.0 * 3.14159265358979323846 * double{philox_uniform(draw[pair + 1])};
      const double turned = index % 2 == 0 ? std::cos(angle) : std::sin(angle);
      EXPECT_EQ(run[i], static_cast<float>(radius * turned)) << index;
    }
  }
}

TEST(Philox, KeysDifferByPurposeAndSeed) {
  EXPECT_NE(philox_key(1, "a"), philox_key(1, "b"));
  EXPECT_NE(philox_key(1, "a"), philox_key(2, "a"));
}

TEST(Permutation, IsABijectionOfEverySize) {
  for (const std::uint64_t count : {1u, 2u, 3u, 5u, 16u, 17u, 1000u, 4097u}) {
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t where = permuted_index(42, count, i);
      EXPECT_LT(where, count);
      seen.insert(where);
    }
    EXPECT_EQ(seen.size(), count);
  }
}

TEST(Permutation, DependsOnTheKey) {
  int same = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    same += permuted_index(1, 1000, i) == permuted_index(2, 1000, i);
  }
  EXPECT_LT(same, 20);
}

TEST(Shape, CountsAndPrints) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.elements(), 24);
  EXPECT_EQ(shape.rows(), 6);
  EXPECT_EQ(shape[-1], 4);
  EXPECT_EQ(shape.with(-1, 8), (Shape{2, 3, 8}));
  EXPECT_EQ(shape.to_string(), "(2, 3, 4)");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_THROW(Shape({-1}), InternalError);
}

TEST(Error, CarriesStatusAndPlace) {
  int line = 0;
  try {
    line = __LINE__ + 1;
    throw DataError("no such file");
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), ExitStatus::kData);
    EXPECT_STREQ(error.what(), "no such file");
    EXPECT_NE(std::string(error.where().file).find("base_test.cc"), std::string::npos);
    EXPECT_EQ(error.where().line, line);
  }
}

TEST(Printable, EscapesWhatATerminalObeys) {
  EXPECT_EQ(printable("plain \\ text"), "plain \\ text");
  EXPECT_EQ(printable("a\nb\tc\rd"), "a\\nb\\tc\\rd");
  EXPECT_EQ(printable("\x1b[31mred\x07\x7f"), "\\x1b[31mred\\x07\\x7f");
  EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J"),
            "\\xc2\\x9b2J");  // U+009B begins a command, too
  EXPECT_EQ(printable("h\xc3\xa9 \xe6\xbc\xa2"), "h\xc3\xa9 \xe6\xbc\xa2");  // valid UTF-8 stays
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("a\u202egpj.exe\u2066\u2028"),
            "a\\xe2\\x80\\xaegpj.exe\\xe2\\x81\\xa6\\xe2\\x80\\xa8");
  EXPECT_EQ(printable("\u2014\u2027\u202f\u2065\u206a"), "\u2014\u2027\u202f\u2065\u206a");
  const std::string once = printable("\x1b\n\xff");
  EXPECT_EQ(printable(once), once);
}

TEST(Printable, ShowsTheBeginningAndTheEndOfWhatIsLong) {
  const std::string fits(200, 'a');
  EXPECT_EQ(shown(fits), fits);
  const std::string value = "begin" + std::string(1'000'000, '\xe9') + "end";
  const std::string text = shown(value);
  EXPECT_LE(text.size(), 200u);
  EXPECT_TRUE(text.starts_with("begin\\xe9\\xe9")) << text;
  EXPECT_TRUE(text.ends_with("\\xe9end")) << text;
  EXPECT_NE(text.find(" ... "), std::string::npos) << text;
  // Characters are counted, not bytes, and none is cut.
  std::string wide;
  for (int i = 0; i < 300; ++i) wide += "\xe6\xbc\xa2";
  const std::string shown_wide = shown(wide);
  EXPECT_EQ(shown_wide.size(), 195 * 3 + 5u);
  EXPECT_EQ(printable(shown_wide), shown_wide);
}

TEST(Error, IsOnePrintableLineThatEnds) {
  EXPECT_STREQ(DataError("a\nb\x1b").what(), "a\\nb\\x1b");
  EXPECT_LE(std::string(DataError(std::string(1'000'000, 'a')).what()).size(), kMostOfMessage);
}

TEST(Error, IsMadeOfWhateverIsCaught) {
  const auto status_of = [](const auto& thrown) {
    return caught(std::make_exception_ptr(thrown)).status();
  };
  EXPECT_EQ(status_of(CheckpointError("no")), ExitStatus::kCheckpoint);
  EXPECT_EQ(status_of(std::bad_alloc()), ExitStatus::kDevice);
  EXPECT_EQ(status_of(std::runtime_error("no")), ExitStatus::kInternal);
  EXPECT_EQ(status_of(5), ExitStatus::kInternal);
  const std::filesystem::filesystem_error full("rename", "/a/b",
                                               std::make_error_code(std::errc::no_space_on_device));
  EXPECT_EQ(status_of(full), ExitStatus::kRunFolder);
  EXPECT_STREQ(caught(std::make_exception_ptr(full)).what(), "/a/b: No space left on device");
}

TEST(SmallFile, RefusesWhatIsNone) {
  const auto message = [](const std::string& path) {
    try {
      read_small_file("--config", path);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message("/dev/null"), "no error");
  EXPECT_EQ(message("/none"), "--config /none: cannot be read: No such file or directory");
  EXPECT_EQ(message("/"), "--config /: cannot be read: Is a directory");
  // bad input: `--config`, `--site`, a template: a file of more than 16 MiB | --config /dev/zero:
  // cannot be read: it is longer than 16 MiB | 2
  EXPECT_EQ(message("/dev/zero"), "--config /dev/zero: cannot be read: it is longer than 16 MiB");
  EXPECT_EQ(message(std::string(300, 'a')).find("--config a"), 0u);
}

TEST(KernelFiles, WhatCannotBeReadTellsNothing) {
  const std::string folder = testing::TempDir() + "kernel", path = folder + "/lines";
  std::filesystem::create_directories(folder);
  std::ofstream(path) << "first line\nsecond\n";
  EXPECT_EQ(kernel_text(path), "first line\nsecond\n");
  EXPECT_EQ(first_line_of(path), "first line");
  EXPECT_EQ(kernel_names(folder), std::vector<std::string>{"lines"});
  for (const std::string& none : {path + "/none", folder, folder + "/none"}) {
    EXPECT_EQ(kernel_text(none), "");
    EXPECT_EQ(first_line_of(none), "");
  }
  EXPECT_EQ(kernel_names(path), std::vector<std::string>());
}

TEST(SmallFile, ReadsAPipeToItsEnd) {
  const std::string path = testing::TempDir() + "pipe";
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] {
    std::ofstream file(path);  // waits for the reader
    file << std::string(200'000, 'x') << std::flush;
  });
  EXPECT_EQ(read_small_file("--config", path), std::string(200'000, 'x'));
  writer.join();
  std::thread silent([&] { std::ofstream file(path); });
  EXPECT_EQ(read_small_file("--config", path), "");
  silent.join();
  // bad input: a file that is a pipe to which nobody writes | --config PIPE: cannot be read: it is
  // a pipe that nobody writes to | 2
  try {
    read_small_file("--config", path);
    ADD_FAILURE() << "it was read";
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.what(),
              "--config " + path + ": cannot be read: it is a pipe that nobody writes to");
  }
}

TEST(DynamicLibrary, OpensTheFirstThatIsThere) {
  const DynamicLibrary library({"libnot_there.so.1", "libc.so.6"});
  ASSERT_TRUE(library.found()) << library.why_not();
  EXPECT_EQ(library.name(), "libc.so.6");
  EXPECT_EQ(library.path().front(), '/');
  EXPECT_EQ(library.required<std::size_t(const char*)>("strlen")("four"), 4u);
  EXPECT_EQ(library.function<void()>("no_such_function"), nullptr);
  try {
    library.required<void()>("no_such_function");
    FAIL() << "it was found";
  } catch (const CudaError& error) {
    EXPECT_STREQ(error.what(), "libc.so.6 has no function no_such_function");
  }
}

TEST(DynamicLibrary, SaysWhyItIsNotThere) {
  const DynamicLibrary library({"libnot_there.so.1", "/nowhere/libnot_there.so"});
  EXPECT_FALSE(library.found());
  EXPECT_EQ(library.path(), "");
  EXPECT_NE(library.why_not().find("libnot_there.so.1"), std::string::npos) << library.why_not();
  EXPECT_EQ(library.function<void()>("strlen"), nullptr);
  EXPECT_THROW(library.required<void()>("strlen"), CudaError);
  EXPECT_EQ(cuda_library_names("cublasLt", 13).front(), "libcublasLt.so.13");
}

TEST(Json, KeepsOrderAndDigits) {
  const Json json = Json::object({{"z", 0.1},
                                  {"a", Json::array({1, -2, std::uint64_t{1} << 63, 3.0})},
                                  {"nothing", Json()},
                                  {"lost", std::nan("")},
                                  {"text", "a\"\n\xff"},
                                  {"yes", true},
                                  {"none", Json::object()}});
  EXPECT_EQ(json.dump(),
            "{\"z\":0.1,\"a\":[1,-2,9223372036854775808,3.0],\"nothing\":null,\"lost\":null,"
            "\"text\":\"a\\\"\\n\xef\xbf\xbd\",\"yes\":true,\"none\":{}}");
  EXPECT_EQ(Json::object({{"a", 1}}).dump(2), "{\n  \"a\": 1\n}");
  EXPECT_EQ(Json::parse(json.dump()).dump(), json.dump());
}

TEST(Json, CborKeepsBytesThatAreNoText) {
  const std::string bytes("\xff\x00\x80", 3);
  const Json json = Json::array({bytes, std::uint64_t{0xffffffffffffffff}, -1, 0.5});
  const Json back = Json::from_cbor(json.to_cbor());
  EXPECT_EQ(back.at(0).text(), bytes);
  EXPECT_EQ(back.at(1).unsigned_integer(), 0xffffffffffffffff);
  EXPECT_EQ(back.at(2).integer(), -1);
  EXPECT_EQ(back.at(3).number(), 0.5);
  EXPECT_THROW(Json::from_cbor("\xff"), JsonError);
}

TEST(Json, RefusesWhatIsNotThere) {
  const Json json = Json::parse(R"({"n": 1.5, "e": 1e3, "big": 18446744073709551615, "n2": -3,
                                    "twice": 1, "twice": 2, "list": [true]})");
  EXPECT_EQ(json.at("n").number(), 1.5);
  EXPECT_EQ(json.at("e").integer(), 1000);
  EXPECT_EQ(json.at("twice").integer(), 2);
  EXPECT_TRUE(json.at("list").at(0).boolean());
  EXPECT_EQ(json.find("none"), nullptr);
  EXPECT_EQ(json.at("n").find("none"), nullptr);
  try {
    Json::parse("hello");
    ADD_FAILURE() << "it was read";
  } catch (const JsonError& error) {
    EXPECT_EQ(std::string(error.what()).find("parse error at line 1, column 1"), 0u)
        << error.what();
  }
  EXPECT_THROW(json.at("none"), JsonError);
  EXPECT_THROW(json.at("list").at(1), JsonError);
  EXPECT_THROW(json.at("n").integer(), JsonError);
  EXPECT_THROW(json.at("n").text(), JsonError);
  EXPECT_THROW(json.at("n").items(), JsonError);
  EXPECT_THROW(json.at("list").number(), JsonError);
  EXPECT_THROW(json.at("big").integer(), JsonError);
  EXPECT_THROW(json.at("n2").unsigned_integer(), JsonError);
  EXPECT_THROW(Json::parse("5000000000").small_integer(), JsonError);
  for (const char* text : {"", "{", "{\"a\":}", "[1] 2", "1e999", "'a'"}) {
    EXPECT_THROW(Json::parse(text), JsonError) << text;
    EXPECT_EQ(Json::parse_or_null(text).dump(), "null") << text;
  }
  // Deep nesting would end the process in the stack, far from where it was read.
  EXPECT_NO_THROW(Json::parse(std::string(200, '[') + std::string(200, ']')));
  EXPECT_THROW(Json::parse(std::string(100000, '[')), JsonError);
}

TEST(Text, OfAListIsSplitAtCommas) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split_list("a,b c,,d"), (Words{"a", "b c", "", "d"}));
  EXPECT_EQ(split_list("a,"), (Words{"a", ""}));
  EXPECT_EQ(split_list(""), Words{""});
}

TEST(NamePatterns, MatchAsAShellMatchesFiles) {
  const NamePatterns patterns =
      NamePatterns::of_list("embedding.*, blocks.[0-1].*.weight,head.?ias");
  EXPECT_TRUE(patterns.match("embedding.weight"));
  EXPECT_FALSE(patterns.match("an.embedding.weight"));
  EXPECT_EQ(patterns.first_match("blocks.1.attention.query.weight"), 1u);
  EXPECT_FALSE(patterns.match("blocks.2.attention.query.weight"));
  EXPECT_FALSE(patterns.match("blocks.1.attention.query.bias"));
  EXPECT_EQ(patterns.first_match("head.bias"), 2u);
  EXPECT_FALSE(NamePatterns().match("head.bias"));
  EXPECT_FALSE(NamePatterns::of_list("").match("head.bias"));
  const std::vector<std::string> names = {"embedding.weight", "head.bias"};
  EXPECT_EQ(patterns.without_match(names), std::vector<std::string>{"blocks.[0-1].*.weight"});
}

TEST(Text, QuantitiesAsPeopleReadThem) {
  EXPECT_EQ(size_text(999), "999 B");
  EXPECT_EQ(size_text(12345678), "11.8 MiB");
  EXPECT_EQ(size_text(1023), "1023 B");
  EXPECT_EQ(size_text((1 << 20) - 1), "1 MiB");
  EXPECT_EQ(size_text(1000 << 10), "1000 KiB");
  EXPECT_EQ(size_text(64 << 10), "64 KiB");
  EXPECT_EQ(size_text(5 << 19), "2.5 MiB");
  EXPECT_EQ(shortest(0.1f), 0.1);
  EXPECT_EQ(shortest(-1e-30f), -1e-30);
  EXPECT_EQ(shortest(3.0f), 3.0);
  EXPECT_EQ(static_cast<float>(shortest(0.3f)), 0.3f);
  EXPECT_EQ(counted(1, "node"), "1 node");
  EXPECT_EQ(counted(0, "node"), "0 nodes");
  EXPECT_EQ(microseconds_text(0.0000125), "12.5");
  EXPECT_EQ(microseconds_text(1.25), "1250000.0");
  EXPECT_EQ(duration_text(59.9), "59 s");
  EXPECT_EQ(duration_text(125), "2 min 05 s");
  EXPECT_EQ(duration_text(90 * 60), "1 h 30 min");
  EXPECT_EQ(duration_text(100 * 3600), "4 d 04 h");
  EXPECT_EQ(time_text(0.0125), "12.5 ms");
  EXPECT_EQ(time_text(1.25), "1.25 s");
  EXPECT_EQ(time_text(61), "1 min 01 s");
  EXPECT_EQ(time_text(0.00292), "2.9 ms");
  EXPECT_EQ(time_text(0.000292), "292.0 us");
  EXPECT_EQ(time_text(0.00099996), "1.0 ms");
  EXPECT_EQ(time_text(0.99996), "1.00 s");
  EXPECT_EQ(time_text(59.997), "1 min 00 s");
  EXPECT_EQ(time_text(0.0), "0.0 ms");
  EXPECT_EQ(plain_number(0.25), "0.25");
  EXPECT_EQ(plain_number(2.34567), "2.346");
  EXPECT_EQ(plain_number(9999.6), "10000");
  EXPECT_EQ(plain_number(1 << 24), "16777216");
  EXPECT_EQ(plain_number(-12345.0), "-12345");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(999.6), "1000");
  EXPECT_EQ(short_number(1234), "1234");
  EXPECT_EQ(short_number(12345), "12.3 k");
  EXPECT_EQ(short_number(999960), "1 M");
  EXPECT_EQ(short_number(-4.56e6), "-4.56 M");
  EXPECT_EQ(short_number(7e12), "7 T");
  EXPECT_EQ(utc_text(0), "1970-01-01 00:00:00");
  EXPECT_EQ(utc_text(1769903999), "2026-01-31 23:59:59");
}

TEST(UpperMedian, LetsHalfOfTheValuesBeLower) {
  EXPECT_EQ(upper_median(std::vector<int>{7}), 7);
  EXPECT_EQ(upper_median(std::vector<int>{3, 1, 2}), 2);
  EXPECT_EQ(upper_median(std::vector<double>{4.0, 1.0, 3.0, 2.0}), 3.0);
}

TEST(InstalledFile, IsFoundAboveTheProgram) {
  const auto program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string folder = program.parent_path().filename(), name = program.filename();
  EXPECT_EQ(find_near_program({"nowhere/" + name, folder + "/" + name}), program);
  EXPECT_EQ(find_near_program({name, folder + "/" + name}), program);
  EXPECT_EQ(find_near_program({"no/such/file"}), std::nullopt);
}

}  // namespace
}  // namespace trireme

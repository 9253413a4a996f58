// Pictures in tar archives become shards as those in folders do.
#include <filesystem>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/prepare_images_testing.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::classes_in;
using testing::compressed;
using testing::kSize;
using testing::make_png;
using testing::make_tar;
using testing::pictures_of;
using testing::PrepareImages;

TEST_F(PrepareImages, ArchivesAreReadAsFoldersAre) {
  const testing::Files files = {{"./pets/", ""},
                                {"./pets/train/cat/1.PNG", make_png(kSize, 3)},
                                {"./pets/train/cat/2.png", make_png(kSize, 2)},
                                {"./pets/train/README", "about cats"},
                                {"./pets/train/dog/1.png", make_png(kSize, 1)},
                                {"./pets/test/cat/1.png", make_png(kSize, 4)}};
  const auto folder = pictures_of(prepare_images(options({write_splits()})).train);
  const std::string tar = make_tar(files);
  const std::string half = tar.substr(0, 1536);
  std::vector<std::string> paths = {write("a.tar", tar)};
  for (const std::string program : {"gzip", "bzip2", "xz", "zstd"}) {
    const auto packed = [&](const std::string& bytes) { return compressed(bytes, program); };
    paths.push_back(write("a.tar." + program, packed(tar)));
    paths.push_back(write("two.tar." + program, packed(half) + packed(tar.substr(half.size()))));
  }
  for (const std::string& path : paths) {
    const PrepareImagesResult result = prepare_images(options({path}));
    EXPECT_EQ(pictures_of(result.train), folder) << path;
    EXPECT_EQ(result.validation->images, 1);
    EXPECT_EQ(result.left_out, 1);
    EXPECT_EQ(result.bytes, fs::file_size(path));
  }
  std::FILE* pipe = ::popen(("cat " + in("a.tar.zstd")).c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  PrepareImagesOptions streamed = options({"-"});
  streamed.standard_input = ::fileno(pipe);
  EXPECT_EQ(pictures_of(prepare_images(streamed).train), folder);
  ::pclose(pipe);
}

TEST_F(PrepareImages, PathsInArchivesAreNames) {
  const std::string elsewhere = (folder_.path() / "elsewhere").string();
  const std::string path =
      write("a.tar", make_tar({{elsewhere + "/cat/1.png", make_png(kSize, 1)},
                               {elsewhere + "/dog/1.png", make_png(kSize, 2)}}));
  EXPECT_EQ(classes_in(prepare_images(options({path})).train),
            (std::vector<std::string>{"cat", "dog"}));
  EXPECT_FALSE(fs::exists(elsewhere));
  // bad input: `prepare --images`: a path in an archive that leads elsewhere | the folder '..'
  // gives no name of a class; expected UTF-8 without control characters, ... | 3
  EXPECT_SAYS(data_fault({write("b.tar", make_tar({{"../1.png", make_png(kSize, 1)}}))}),
              "the folder '..' gives no name of a class; expected UTF-8");
  EXPECT_SAYS(data_fault({write("c.tar", make_tar({{"a\nb/1.png", make_png(kSize, 1)}}))}),
              "gives no name of a class");
}

// A pax header for the member after it.
std::string pax_header(const std::string& record) {
  std::string header = make_tar({{"PaxHeader", record}});
  header[156] = 'x';
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (std::size_t i = 0; i < 512; ++i) sum += static_cast<unsigned char>(header[i]);
  header.replace(148, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  header.resize(header.size() - 1024);  // the end of an archive
  return header;
}

TEST_F(PrepareImages, PaxHeadersNameMembers) {
  const std::string picture = make_png(kSize, 1);
  const std::string cut = make_tar({{"short.png", picture}, {"pets/b/1.png", picture}});
  std::string header = pax_header("24 path=pets/\xc3\xa4\xc3\xb6/1.png\n");
  EXPECT_EQ(classes_in(prepare_images(options({write("a.tar", header + cut)})).train),
            (std::vector<std::string>{"\xc3\xa4\xc3\xb6", "b"}));
  header[512] = '9';  // a record of another length
  EXPECT_SAYS(data_fault({write("b.tar", header + cut)}),
              "b.tar: damaged: the header after the beginning is none (");
  // Memory for names shall not grow as fast as an archive unfolds.
  const std::string path = std::string(5000, 'p') + "/1.png";
  EXPECT_SAYS(data_fault({write("c.tar", pax_header(fmt::format("5017 path={}\n", path)) + cut)}),
              "c.tar: damaged: a path of 5006 bytes, of at most 4096");
}

TEST_F(PrepareImages, BadArchivesAreRefused) {
  const std::string tar = make_tar({{"cat/1.png", make_png(kSize, 1)}});
  // bad input: `prepare --images`: a file that is no archive | ...: neither a folder nor a tar
  // archive, of plain bytes or compressed with gzip, bzip2, xz or zstd | 3
  EXPECT_SAYS(data_fault({write("a.png", make_png({64, 64}, 1))}),
              "a.png: neither a folder nor a tar archive");
  EXPECT_SAYS(data_fault({write("empty", "")}), "empty: neither a folder nor a tar archive");
  EXPECT_SAYS(data_fault({write("none.tar", std::string(1024, '\0'))}),
              "there are no pictures (.jpg, .jpeg, .png) in");
  // bad input: `prepare --images`: an archive that was cut | ...: ends too early, in cat/1.png | 3
  EXPECT_SAYS(data_fault({write("cut.tar", tar.substr(0, 600))}), "ends too early, in cat/1.png");
  EXPECT_SAYS(data_fault({write("end.tar", tar.substr(0, tar.size() - 1024))}),
              "ends without the mark that ends a tar archive");
  std::string damaged = make_tar({{"cat/1.png", make_png(kSize, 1)}, {"cat/2.png", "x"}});
  damaged[damaged.size() - 1024 - 1024 + 5] ^= 1;
  // bad input: `prepare --images`: an archive with a damaged header | ...: damaged: the header
  // after cat/1.png does not match its checksum | 3
  EXPECT_SAYS(data_fault({write("damaged.tar", damaged)}),
              "the header after cat/1.png does not match its checksum");
  EXPECT_SAYS(data_fault({in("nothing")}), "cannot be read");
}

TEST_F(PrepareImages, BadCompressedArchivesAreRefused) {
  const std::string tar = make_tar({{"cat/1.png", make_png(kSize, 1)}});
  for (const std::string program : {"none", "gzip", "bzip2", "xz", "zstd"}) {
    const std::string whole = program == "none" ? tar : compressed(tar, program);
    // Wherever an archive is cut, the pictures before that are not taken for all.
    for (std::size_t size = 1; size + 1024 <= tar.size() && size < whole.size(); size += 37) {
      EXPECT_NE(data_fault({write("cut", whole.substr(0, size))}), "nothing was thrown")
          << program << size;
    }
    if (program == "none") continue;
    // bad input: `prepare --images`: a damaged compressed archive, or one that was cut | ...:
    // damaged: the compressed data end too early; ...: damaged: the compressed data are not what
    // xz writes (...) | 3
    EXPECT_SAYS(data_fault({write("cut.tar", whole.substr(0, whole.size() - 20))}),
                "cut.tar: damaged: the compressed data end too early");
    std::string damaged = whole;  // where a checksum or a block begins
    damaged.replace(program == "zstd" ? 6 : 10, 4, 4, '\xff');
    EXPECT_SAYS(
        data_fault({write("damaged.tar", damaged)}),
        fmt::format("damaged.tar: damaged: the compressed data are not what {} writes (", program));
    if (program != "bzip2" && program != "xz") continue;  // no checksum is compared
    std::string flipped = whole;
    flipped[whole.size() / 2] ^= 1;
    PrepareImagesOptions skipping = options({write("flipped.tar", flipped)});
    skipping.skip_bad = true;  // the damage may show in a picture first
    EXPECT_SAYS(
        fault<DataError>(skipping),
        fmt::format("flipped.tar: damaged: the compressed data are not what {} writes (", program));
  }
  // bad input: `prepare --images`: an archive compressed otherwise | ...: lz4 data; `lz4 -dc
  // FILE ...` reads it | 3
  EXPECT_SAYS(data_fault({write("a.tar.lz4", "\x04\x22\x4d\x18 and so on")}),
              "lz4 data; `lz4 -dc FILE | trireme prepare --images - --output DIR` reads it");
  EXPECT_SAYS(data_fault({write("a.zip", "PK\x03\x04 and so on")}), "a zip archive; unpack it");
}

}  // namespace
}  // namespace trireme

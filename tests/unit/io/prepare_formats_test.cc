// Texts in all that they come in: records, packed files and archives become the same shard.
#include <functional>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "trireme/base/json.h"

#include "support/prepare_testing.h"
#include "support/sample_pictures.h"
#include "support/sample_text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

using testing::compressed;
using testing::contents;
using testing::documents;
using testing::expect_fault;
using testing::make_tar;
using testing::message_of;
using testing::Prepare;
using testing::Texts;

const std::vector<std::string> kCodecs = {"gzip", "bzip2", "xz", "zstd"};

std::string as_json_record(const std::string& text) {
  return Json::object({{"id", 7}, {"text", text}, {"tags", Json::array({"a", "]}"})}}).dump();
}

std::string as_json_lines(const Texts& texts) {
  std::string lines;
  for (const std::string& text : texts) lines += as_json_record(text) + "\n";
  return lines;
}

std::string as_json_array(const Texts& texts) {
  std::string array = "[\n  ";
  for (const std::string& text : texts) {
    if (array.size() > 4) array += " ,\n";
    array += as_json_record(text);
  }
  return array + "\n]\n";
}

std::string as_table(const Texts& texts, char delimiter, const std::string& line_end) {
  std::string table = std::string("id") + delimiter + "text" + line_end;
  for (const std::string& text : texts) {
    std::string quoted;
    for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    table += std::string("7") + delimiter + '"' + quoted + '"' + line_end;
  }
  return table;
}

std::string as_utf16(const std::string& text, bool big) {
  std::string units;
  const auto add = [&](unsigned unit) {
    const char high = static_cast<char>(unit >> 8), low = static_cast<char>(unit & 255);
    units += big ? high : low;
    units += big ? low : high;
  };
  add(0xfeff);
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t k) {
      return static_cast<unsigned>(static_cast<unsigned char>(text[i + k]));
    };
    const std::size_t size = byte(0) < 0x80 ? 1 : byte(0) < 0xe0 ? 2 : byte(0) < 0xf0 ? 3 : 4;
    unsigned c = size == 1 ? byte(0) : byte(0) & (0x7fu >> size);
    for (std::size_t k = 1; k < size; ++k) c = c << 6 | (byte(k) & 0x3f);
    if (c >= 0x10000) {
      add(0xd800 + ((c - 0x10000) >> 10));
      add(0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      add(c);
    }
    i += size;
  }
  return units;
}

testing::Files as_files(const Texts& texts, const std::function<std::string(std::string)>& change) {
  testing::Files files;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    files.push_back({fmt::format("corpus/{:03}.txt", i), change(texts[i])});
  }
  return files;
}

// Texts of all sizes and characters, and one longer than what is read at a time.
Texts corpus() {
  Texts texts = {"one\ntwo \"quoted\", three\tfour\n", "\\ [{]} \\\"",
                 "  e\xcc\x81 \xf0\x9f\x98\x80 ", testing::sample_text(1100000, 9)};
  for (unsigned i = 0; i < 60; ++i) texts.push_back(testing::sample_text(1 + i * i * 2, i));
  return texts;
}

TEST_F(Prepare, WhatTextsComeInDoesNotShow) {
  const Texts texts = corpus();
  std::map<std::string, std::string> forms = {
      {"lines", as_json_lines(texts)},
      {"array", as_json_array(texts)},
      {"csv", as_table(texts, ',', "\n")},
      {"tsv", as_table(texts, '\t', "\r\n")},
      {"lines with a mark", "\xef\xbb\xbf" + as_json_lines(texts)},
      {"lines in UTF-16", as_utf16(as_json_lines(texts), false)},
      {"csv in UTF-16", as_utf16(as_table(texts, ',', "\r\n"), true)},
      {"tar", make_tar(as_files(texts, [](std::string text) { return text; }))},
      {"tar of UTF-16",
       make_tar(as_files(
           texts, [](const std::string& text) { return as_utf16(text, text.size() % 2 == 0); }))},
      {"tar of gzip",
       make_tar(as_files(texts, [](const std::string& text) { return compressed(text, "gzip"); }))},
      {"tar of tars", make_tar({{"a", make_tar({{"b", as_json_lines(texts)}})}})},
      {"tar of lines", make_tar({{"._a", "hidden"}, {"a", as_json_lines(texts)}})},
      {"tar of zstd", make_tar({{"a", compressed(as_json_lines(texts), "zstd")}})}};
  forms["csv in xz"] = compressed(forms["csv"], "xz");
  for (const std::string& codec : kCodecs) {
    for (const char* form : {"lines", "tar"}) {
      forms[fmt::format("{} in {}", form, codec)] = compressed(forms[form], codec);
    }
  }
  PrepareOptions options = this->options({(folder_.path() / "in").string()});
  options.validation = parse_validation_split("hash:0.2");
  const std::set<std::string> learned = {"csv in xz", "tar of UTF-16"};
  for (const char* tokenizer : {"byte", "bpe:330"}) {
    options.tokenizer = parse_tokenizer_choice(tokenizer);
    options.threads = 2;
    fs::remove_all(folder_.path() / "in");
    for (const auto& [path, text] : as_files(texts, [](std::string one) { return one; })) {
      write("in/" + path, text);
    }
    prepare(options);
    const std::string train = contents(output() + "/train.h5");
    const std::string validation = contents(output() + "/validation.h5");
    EXPECT_GT(validation.size(), 1000u);
    for (const auto& [form, bytes] : forms) {
      if (std::string_view(tokenizer) != "byte" && !learned.contains(form)) continue;
      fs::remove_all(folder_.path() / "in");
      write("in", bytes);
      options.threads = 1;
      const PrepareResult result = prepare(options);
      EXPECT_TRUE(contents(output() + "/train.h5") == train) << form;
      EXPECT_TRUE(contents(output() + "/validation.h5") == validation) << form;
      EXPECT_EQ(result.left_out.hidden, form == "tar of lines" ? 1 : 0);
    }
  }
}

TEST_F(Prepare, FieldsAreTakenOutOfRecords) {
  const std::string path = write(
      "a",
      R"({"title": "T", "meta": {"body": "B", "a.b": "C"}, "n": 12345678901234567890123, "x": 1e2})"
      "\n\n  {\"title\":\"U\", \"meta.body\": \"D\", \"meta\": {\"a.b\": \"E\"}, \"title\": "
      "\"V\"}");
  PrepareOptions options = this->options({path});
  const auto texts_of = [&](const std::string& field) {
    options.fields = parse_record_fields(field);
    return documents(prepare(options).train);
  };
  EXPECT_EQ(texts_of("meta.body"), (Texts{"B", "D"}));
  EXPECT_EQ(texts_of("title,meta.a.b"), (Texts{"T\n\nC", "V\n\nE"}));
  EXPECT_EQ(texts_of("none"), Texts{contents(path)});
  options.inputs = {write("d", R"({"a.b": {"c": "1"}}
{"a": {"b.c": "2"}}
{"a": {"b": {"c": "3"}}}
{"a.b.c": "4", "a": {"b.c": "5"}})")};
  EXPECT_EQ(texts_of("a.b.c"), (Texts{"1", "2", "3", "4"}));
  options.inputs = {write("c", "text\tnote\nx\ty\n\n\"a \"\"b\"\"\t\nc\"\tz")};
  options.document_separator = "x";  // is for plain text
  EXPECT_EQ(texts_of("note"), (Texts{"y", "z"}));
  EXPECT_EQ(texts_of("text"), (Texts{"x", "a \"b\"\t\nc"}));
  options.input_limit = 3;
  EXPECT_EQ(texts_of("text"), (Texts{"x", "a "}));
}

// Rows are the documents that they would be as JSON Lines, whatever the codec.
TEST_F(Prepare, ParquetIsReadByField) {
  std::string lines;
  for (int i = 0; i < 40; ++i) lines += fmt::format("{{\"name\": \"row{:03}\"}}\n", i);
  PrepareOptions options = this->options({write("in", lines)});
  options.fields = parse_record_fields("name");
  prepare(options);
  const std::string train = contents(output() + "/train.h5");
  for (const char* name : {"plain", "snappy", "zstd", "gzip", "lz4", "delta"}) {
    write("in", contents(fmt::format("{}/{}.parquet", TRIREME_PARQUET, name)));
    prepare(options);
    EXPECT_TRUE(contents(output() + "/train.h5") == train) << name;
  }
  options.fields = parse_record_fields("name,meta.body");
  // bad input: `prepare`: a row of Parquet whose field is null | ...: row 6: the field '...' is
  // null, not a text; --skip-bad true leaves such records out | 3
  expect_fault<DataError>(options,
                          "in: row 6: the field 'meta.body' is null, not a text; --skip-bad true");
  options.skip_bad = true;
  const PrepareResult result = prepare(options);
  EXPECT_EQ(result.bad_records.count, 4u);
  EXPECT_EQ(documents(result.train)[1], "row001\n\nbody 1");
  options.fields = parse_record_fields("messages");
  // bad input: `prepare`: a field of Parquet that holds no texts | ...: the field '...' is a list,
  // not texts | 3
  expect_fault<DataError>(options, "in: the field 'messages' is a list, not texts");
  options.fields = parse_record_fields("id");
  expect_fault<DataError>(options, "in: the field 'id' is INT32, not texts");
  options.fields = parse_record_fields("text");
  write("in", contents(fmt::format("{}/brotli.parquet", TRIREME_PARQUET)));
  expect_fault<DataError>(options, "in: column text is compressed with BROTLI, which is not read");
  write("in", compressed(contents(fmt::format("{}/gzip.parquet", TRIREME_PARQUET)), "gzip"));
  options.fields = parse_record_fields("name");
  prepare(options);
  EXPECT_TRUE(contents(output() + "/train.h5") == train) << "packed";
  const std::string plain = contents(fmt::format("{}/plain.parquet", TRIREME_PARQUET));
  write("in", make_tar({{"a.parquet", plain}}));
  prepare(options);
  EXPECT_TRUE(contents(output() + "/train.h5") == train) << "in a tar";
  options.fields = parse_record_fields("none");
  write("in", plain);
  // bad input: `prepare --field none`: a Parquet file | ...: a Parquet file is no plain text:
  // --field NAME takes 'text', 'name' | 3
  expect_fault<DataError>(options,
                          "in: a Parquet file is no plain text: --field NAME takes 'text'");
  options.fields = parse_record_fields("nosuch");
  expect_fault<DataError>(options, "in: no field 'nosuch', but 'text', 'name'");
}

// What people call a table is one; what else looks like records is said.
TEST_F(Prepare, TablesAreKnownByWhatTheyHold) {
  const auto texts = [&](const std::string& name, const std::string& text,
                         const std::string& field = "") {
    PrepareOptions options = this->options({write(name, text)});
    if (!field.empty()) options.fields = parse_record_fields(field);
    const PrepareResult result = prepare(options);
    EXPECT_EQ(result.plain_records.count, 0) << result.plain_records.first;
    return documents(result.train);
  };
  const Texts two = {"x", "y"};
  EXPECT_EQ(texts("a", "id,,text\n1,2,x\n3,4,y\n"), two);  // a name is missing
  EXPECT_EQ(texts("a", "\"a b\",id, text\n1,2,x\n3,4,y\n"), two);
  EXPECT_EQ(texts("a", "id,id, text\n1,2,x\n3,4,y\n"), two);    // another is there twice
  EXPECT_EQ(texts("a", "id;text\r\n1;x\r\n2;y\r\n\x1a"), two);  // as in DOS
  EXPECT_EQ(texts("a.csv", "text\nx\n\ny\n"), two);
  EXPECT_EQ(texts("a.TSV", "text\nx\ny\n"), two);
  EXPECT_EQ(texts("a", "text\nx\ny\n", "text"), two);
  EXPECT_EQ(texts("a", "Text;b\nx;1\ny;2\n", "Text"), two);
  EXPECT_EQ(texts("a", "text\nx\ny\n"), Texts{"text\nx\ny\n"});
  for (const char* field : {"text", "auto"}) {
    PrepareOptions options = this->options({write("a", "text,id,text\n1,2,x\n3,4,y\n")});
    if (std::string_view(field) != "auto") options.fields = parse_record_fields(field);
    // bad input: `prepare`: a table with two columns of the name that is asked for | ...: line 1:
    // two columns are called 'text'; rename one of them | 3
    expect_fault<DataError>(options, "a: line 1: two columns are called 'text'");
  }
  const std::vector<std::pair<std::string, std::string>> plain = {{"a", "id,Text\n1,x\n2,y\n3,z\n"},
                                                                  {"a.csv", "id,Text\n1,x\n"},
                                                                  {"a.csv.gz", "no table\n"},
                                                                  {"a.json", "{\n\"text\": 1\n}\n"},
                                                                  {"a.jsonl", "no JSON\n"}};
  for (const auto& [name, text] : plain) {
    const PrepareResult result = prepare(options({write(name, text)}));
    EXPECT_EQ(documents(result.train), Texts{text});
    EXPECT_EQ(result.plain_records.count, 1) << name;
  }
  EXPECT_NE(prepare(options({write("a.csv", "id,Text\n1,x\n")}))
                .plain_records.first.find(
                    "a.csv: a table with no field 'text', but 'id', 'Text': --field NAME"),
            std::string::npos);
}

TEST_F(Prepare, JsonWithABrokenFirstLineIsJson) {
  const std::string good = "{\"text\": \"x\"}\n{\"text\": \"y\"}\n";
  for (const std::string first : {"junk\n", "{\"text\": \"cut\n", "{'text': 'z'}\n", "\n[1]\n"}) {
    PrepareOptions options = this->options({write("a", first + good)});
    expect_fault<DataError>(options, "; --skip-bad true leaves such records out");
    options.skip_bad = true;
    const PrepareResult result = prepare(options);
    EXPECT_EQ(documents(result.train), (Texts{"x", "y"}));
    EXPECT_EQ(result.bad_records.count, 1) << first;
  }
  expect_fault<DataError>(options({write("a", "{\"text\": \"cut\n" + good)}),
                          "a: line 1, column 14: broken JSON: ");
  PrepareOptions pretty = options({write("a", "{\n \"text\": \"x\",\n\"a\": [\n{}\n]}\n")});
  pretty.fields = parse_record_fields("text");
  EXPECT_EQ(documents(prepare(pretty).train), Texts{"x"});
}

// Numbers may have more digits than any type, where nobody asks for them.
TEST_F(Prepare, LongNumbersInRecordsDoNotMatter) {
  const std::string long_number = "-" + std::string(400, '7') + ".5e+999";
  const std::string record =
      "{\"n\": " + long_number + ", \"text\": \"a\\\"1\", \"m\": [1e999, NaN, -Infinity]}\n";
  PrepareOptions options = this->options({write("a", record + record)});
  EXPECT_EQ(documents(prepare(options).train), (Texts{"a\"1", "a\"1"}));
  options.inputs = {write("a", record + "{\"text\": 0" + long_number + "}")};
  const std::string said = message_of<DataError>([&] { prepare(options); });
  EXPECT_NE(said.find("a: line 2, column "), std::string::npos) << said;
  EXPECT_LT(said.size(), 400u);
  options.fields = parse_record_fields("n");
  expect_fault<DataError>(options, "a: line 1, column 1: the field 'n' is a number, not a string");
}

// A folder of records has other files beside them, which have no such field.
TEST_F(Prepare, FilesWithoutTheFieldAreLeftOutOfFolders) {
  write("in/a.jsonl", "{\"text\": \"x\"}\n");
  write("in/license.json", "{\"license\": \"MIT\"}\n");
  const std::string folder = (folder_.path() / "in").string();
  PrepareOptions options = this->options({folder});
  PrepareResult result = prepare(options);
  EXPECT_EQ(documents(result.train), Texts{"x"});
  EXPECT_EQ(result.left_out.lacking, 1);
  EXPECT_EQ(words_of(result.left_out),
            "1 other file (" + folder +
                "/license.json: no field 'text', but 'license': --field NAME, or --field none for "
                "text)");
  write("in/patch.json", "[\n{\"op\": 1},\n{\"at\": 2}\n]\n");
  write("in/config.jsonl", "{\"a\": 1}\n\n{\"b\": 2}\n");
  EXPECT_EQ(prepare(options).left_out.lacking, 3);
  // A record has it, or one is broken.
  for (const char* some :
       {"{\"a\": 1}\n{\"text\": \"x\"}\n", "{\"a\": 1}\n{\n", "[{}, {\"text\": \"x\"}]"}) {
    write("in/config.jsonl", some);
    EXPECT_THROW(prepare(options), DataError) << some;
  }
  write("in/config.jsonl", "{\"a\": 1}\n\n{\"b\": 2}\n");
  write("in/README.md", "# words\n");
  write("in/split.csv", "id,part\n1,2\n");
  write("in/p.parquet", contents(fmt::format("{}/plain.parquet", TRIREME_PARQUET)));
  std::filesystem::path fifo = folder + "/fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  options.fields = parse_record_fields("text");
  options.skip_bad = true;
  result = prepare(options);
  EXPECT_EQ(result.left_out.lacking, 5);
  EXPECT_EQ(result.left_out.pipes, 1);
  options.fields = parse_record_fields("nosuch");
  // bad input: `prepare`: a folder in which no file has the field | there is no text in ...: 7
  // other files (the first: ...: no field ...) | 3
  expect_fault<DataError>(options, ": 1 pipe, 7 other files (the first: ");
  options.inputs = {folder + "/README.md"};
  // bad input: `prepare --field`: a plain text | ...: --field nosuch: neither JSON nor a table with
  // a header, but plain text | 3
  expect_fault<DataError>(options, "README.md: --field nosuch: neither JSON nor a table");
  options.inputs = {folder + "/license.json"};
  options.skip_bad = false;
  expect_fault<DataError>(options, "license.json: line 1, column 1: no field 'nosuch'");
}

// Marks of UTF-8 at the beginning, zeros of tapes at the end, and the little that is left of files.
TEST_F(Prepare, MarksAndPaddingAreNoText) {
  const std::string mark = "\xef\xbb\xbf";
  PrepareOptions options = this->options({write("a", mark + "text"), write("b", mark)});
  EXPECT_EQ(documents(prepare(options).train), Texts{"text"});
  options.inputs = {write("a.tar", make_tar({{"a", mark + "one"}, {"b", "two"}}))};
  EXPECT_EQ(documents(prepare(options).train), (Texts{"one", "two"}));
  options.input_limit = 2;
  EXPECT_EQ(documents(prepare(options).train), Texts{"on"});
  options.as_bytes = true;
  options.input_limit = 0;
  options.inputs = {write("a", mark + "text")};
  EXPECT_EQ(documents(prepare(options).train), Texts{mark + "text"});
  for (const char* codec : {"gzip", "bzip2", "xz"}) {
    const std::string padded = compressed("text", codec) + std::string(300000, '\0');
    EXPECT_EQ(documents(prepare(this->options({write("a", padded)})).train), Texts{"text"});
    const std::string ends =
        std::string_view(codec) == "xz" ? "a: damaged: " : "bytes follow the end";
    expect_fault<DataError>(this->options({write("a", padded + "x")}), ends);
  }
  // bad input: `prepare`: an empty tar archive | ...: zeros alone, as in a tar archive without
  // files | 3
  expect_fault<DataError>(this->options({write("a.tar", std::string(10240, '\0'))}),
                          "a.tar: zeros alone, as in a tar archive without files");
  std::string tar = make_tar({{"a", "text"}});
  tar[150] = '9';
  // bad input: `prepare`: a tar archive whose first header is damaged | ...: damaged: the header at
  // the beginning does not match its checksum | 3
  expect_fault<DataError>(this->options({write("a.tar", tar)}),
                          "a.tar: damaged: the header at the beginning does not match");
  for (const std::string& codec : kCodecs) {
    for (std::size_t size = codec == "bzip2" ? 5 : codec == "xz" ? 2 : 1; size < 4; ++size) {
      if (codec == "zstd" && size == 1) continue;  // a bracket
      expect_fault<DataError>(this->options({write("a", compressed("x", codec).substr(0, size))}),
                              "a: damaged: the compressed data end too early");
    }
  }
}

// What only looks like records is plain text, unless a field is asked for.
TEST_F(Prepare, PlainTextsStayAsTheyAre) {
  for (const std::string text :
       {"{\n  \"name\": \"a\"\n}\n", "[1, 2]\n", "[] buy milk\n", "{x} is\n", "Dear text, hello\nb",
        "text\nand more", "[{1}]", "caf\xe9 and text,more words\n"}) {
    EXPECT_EQ(documents(prepare(options({write("a", text)})).train), Texts{text});
  }
  PrepareOptions asked = options({write("a", "id,body\n1,b\n")});
  asked.fields = parse_record_fields("text");
  // bad input: `prepare --field`: a table without it | ...: --field text: a table with no field
  // 'text', but 'id', 'body': --field NAME, or --field none for text | 3
  expect_fault<DataError>(
      asked, "a: --field text: a table with no field 'text', but 'id', 'body': --field NAME");
  for (const char* bad : {"", ",", "a,", ",a", "a,b,a"}) {
    EXPECT_THROW(parse_record_fields(bad), ConfigError) << bad;
  }
}

TEST_F(Prepare, BadRecordsAreRefusedOrLeftOut) {
  const std::string good = "{\"text\": \"good\"}\n";
  const std::vector<std::pair<std::string, std::string>> all = {
      // bad input: `prepare`: broken JSON, also half of a surrogate pair | ...: line 2, column 12:
      // broken JSON: ...; --skip-bad true leaves such records out | 3
      {"{\"text\": \"b\", }", "a: line 2, column 15: broken JSON: "},
      {"{\"text\": \"cut", "a: line 2, column 14: broken JSON: "},
      {"{\"text\": \"\\ud800 x\"}", "a: line 2, column 17: broken JSON: "},
      {"{\"text\": \"\\udc00\"}", "a: line 2, column 16: broken JSON: "},
      {"{\"text\": \"\xff\"}", "a: line 2, column 11: broken JSON: "},
      {"{\"text\": \"x\"} {}", "a: line 2, column 15: broken JSON: "},
      // bad input: `prepare`: a record without the field, or whose field is no string | ...: line
      // 2,
      // column 1: no field 'text', but 'body': --field NAME, or --field none for text; ...; ...:
      // the
      // field 'text' is a number, not a string; ... | 3
      {"{\"body\": 1, \"id\": 2}",
       "a: line 2, column 1: no field 'text', but 'body', 'id': --field"},
      {" {\"text\": 1}",
       "a: line 2, column 2: the field 'text' is a number, not a string; --skip-bad"},
      {"{\"text\": null}", "the field 'text' is null, not a string"},
      {"[1]", "a: line 2, column 1: an array where an object is expected"}};
  for (const auto& [record, words] : all) {
    PrepareOptions options = this->options({write("a", good + record)});
    expect_fault<DataError>(options, words);
    options.skip_bad = true;
    const PrepareResult result = prepare(options);
    EXPECT_EQ(documents(result.train), Texts{"good"});
    EXPECT_EQ(result.bad_records.count, 1);
    EXPECT_NE(result.bad_records.first.find(words.substr(0, 30)), std::string::npos);
    if (record.find("cut") != std::string::npos) continue;
    options.inputs = {write("a", "[{\"text\": \"good\"},\n" + record + ", {\"text\": \"more\"}]")};
    if (record.find("} {") != std::string::npos) continue;
    EXPECT_EQ(documents(prepare(options).train), (Texts{"good", "more"})) << record;
  }
  PrepareOptions none = options({write("a", "{\"body\": \"b\"}")});
  none.skip_bad = true;
  expect_fault<DataError>(none,
                          "there is no text in " + none.inputs[0] + ": 1 bad record left out");
}

TEST_F(Prepare, BadFilesOfRecordsAreRefused) {
  const std::vector<std::pair<std::string, std::string>> all = {
      // bad input: `prepare`: an array of JSON that is cut, or goes on | ...: line 1, column 19:
      // broken JSON: the end of the file instead of ',' or ']' after a record | 3
      {"[{\"text\": \"good\"}",
       "column 18: broken JSON: the end of the file instead of ',' or ']'"},
      {"[{\"text\": \"go", "column 14: broken JSON: the end of the file instead of the rest"},
      {"[{\"text\": \"good\"}\n] x", "line 2, column 3: broken JSON: 'x' instead of the end after"},
      {"[{\"text\": \"good\"} {", "column 19: broken JSON: '{' instead of ',' or ']'"},
      // bad input: `prepare`: a record of a table with other fields than its header | ...: line 3:
      // 1
      // fields, and 2 in the header; ... | 3
      {"id,text\n1,2\n1\n", "a: line 3: 1 fields, and 2 in the header; --skip-bad true"},
      {"id,text\n1,\"2\"3\n", "a: line 2: a quote ends a field, and neither"},
      // bad input: `prepare`: a table with a quote that is not closed | ...: line 2: a quoted field
      // that does not end | 3
      {"id,text\n1,\"2\n", "a: line 2: a quoted field that does not end"},
      // bad input: `prepare`: UTF-16 that is damaged | ...: damaged UTF-16: half of a character
      // stands alone at byte 4 | 3
      {std::string("\xff\xfe\0\xd8x\0", 6),
       "damaged UTF-16: half of a character stands alone at byte 4"},
      {std::string("\xff\xfex\0x", 5), "damaged UTF-16: a byte is missing"},
      // bad input: `prepare`: a record of more than 64 MiB | ...: line 1, column 1: a record of
      // more
      // than 64 MiB | 3
      {"{\"text\": \"" + std::string(std::size_t{66} << 20, 'x'),
       "column 1: a record of more than 64 MiB"}};
  for (const auto& [text, words] : all) expect_fault<DataError>(options({write("a", text)}), words);
}

TEST_F(Prepare, LinesThatAreTooLongAreLeftOut) {
  const std::string good = R"({"text": "good"})", large(std::size_t{66} << 20, 'x');
  const std::string longer = large + large;  // than is looked at together
  for (const std::string& text :
       {good + "\n{\"text\": \"" + large + "\"}\n" + good + "\n",
        good + "\n" + longer + "\n" + good, good + "\n" + good + "\n" + longer}) {
    PrepareOptions options = this->options({write("a.jsonl", text)});
    const std::string line = text.ends_with("x") ? "3" : "2";
    expect_fault<DataError>(
        options, "a.jsonl: line " + line + ", column 1: a record of more than 64 MiB; --skip-bad");
    options.skip_bad = true;
    const PrepareResult result = prepare(options);
    EXPECT_EQ(documents(result.train), (Texts{"good", "good"}));
    EXPECT_EQ(result.bad_records.count, 1);
  }
}

TEST_F(Prepare, DamagedPackedTextsAreRefused) {
  const std::string text = testing::sample_text(30000, 3);
  for (const std::string& codec : kCodecs) {
    const std::string whole = compressed(text, codec);
    for (std::size_t size = 12; size < whole.size(); size += size < 40 ? 1 : 97) {
      // bad input: `prepare`: compressed text that is cut, damaged, or has bytes after its end |
      // ...: damaged: the compressed data end too early; ...: damaged: bytes follow the end of the
      // compressed data; ...: damaged: the compressed data are not what gzip writes (...) | 3
      const PrepareOptions options = this->options({write("cut", whole.substr(0, size))});
      const std::string said = message_of<DataError>([&] { prepare(options); });
      EXPECT_NE(said.find("cut: damaged: the compressed data "), std::string::npos)
          << codec << size << said;
    }
    expect_fault<DataError>(options({write("rest", whole + std::string(60, '\7'))}),
                            "rest: damaged: ");
    EXPECT_EQ(documents(prepare(options({write("two", whole + whole)})).train), Texts{text + text});
    if (codec == "zstd") continue;  // libarchive writes no checksum
    std::string damaged = whole;
    damaged[whole.size() - (codec == "gzip" ? 6 : 30)] ^= 1;
    expect_fault<DataError>(options({write("bit", damaged)}), "bit: damaged: ");
  }
  expect_fault<DataError>(options({write("twice", compressed(compressed(text, "gzip"), "xz"))}),
                          "twice: gzip data, not text");
  // bad input: `prepare`: a tar archive of texts that is cut or damaged | ...: ends too early, in
  // a.txt | 3
  const std::string tar = make_tar({{"a.txt", text}});
  expect_fault<DataError>(options({write("t", tar.substr(0, 9000))}),
                          "t: ends too early, in a.txt");
  expect_fault<DataError>(options({write("t", tar.substr(0, tar.size() - 1024))}),
                          "t: ends without the mark");
  // bad input: `prepare`: tar archives that were joined | ...: bytes follow the mark that ends the
  // tar archive, ...: name each by itself | 3
  const std::string large = make_tar({{"a.txt", testing::sample_text(600000, 3)}});
  for (const std::string& first : {tar, large}) {
    EXPECT_EQ(
        documents(prepare(options({write("t", first + std::string(9216, '\0'))})).train).size(),
        1U);
    for (const std::string& rest : {tar, std::string(300000, '\0') + "x"}) {
      expect_fault<DataError>(options({write("t", first + rest)}),
                              "t: bytes follow the mark that ends the tar archive");
      expect_fault<DataError>(options({write("t.gz", compressed(first + rest, "gzip"))}),
                              "t.gz: bytes follow the mark that ends the tar archive");
    }
  }
}

// `tar --format=v7` writes such, and volumes with a label begin so.
TEST_F(Prepare, TarArchivesWithoutAMagicAreKnown) {
  constexpr std::size_t kSumAt = 148, kMagicAt = 257, kMagicBytes = 8;
  std::string tar = make_tar({{"a.txt", "old"}, {"b.txt", "older"}});
  int sum = 0;
  for (std::size_t i = 0; i < 512; ++i) {
    if (i >= kMagicAt && i < kMagicAt + kMagicBytes) tar[i] = '\0';
    sum += i >= kSumAt && i < kSumAt + 8 ? ' ' : static_cast<unsigned char>(tar[i]);
  }
  tar.replace(kSumAt, 8, fmt::format("{:06o}", sum) + std::string("\0 ", 2));
  EXPECT_EQ(documents(prepare(options({write("t", tar)})).train), (Texts{"old", "older"}));
  EXPECT_EQ(documents(prepare(options({write("t.xz", compressed(tar, "xz"))})).train),
            (Texts{"old", "older"}));
  tar[0] = 'x';  // its checksum is another one now
  expect_fault<DataError>(options({write("t", tar)}), "t: byte 6 is zero: binary data");
}

// A clone of a dataset whose files were not fetched.
TEST_F(Prepare, PointersOfLfsAreNoTexts) {
  const std::string begins = "version https://git-lfs.github.com/spec/v1\n";
  const std::string pointer = write("in/a.parquet", begins + "oid sha256:9e55\nsize 499723\n");
  // bad input: `prepare`: a pointer of Git LFS | ...: a pointer of Git LFS in place of the file:
  // git lfs pull fetches it | 3
  expect_fault<DataError>(options({pointer}),
                          "a.parquet: a pointer of Git LFS in place of the file");
  const std::string long_text = begins + std::string(1024, 'x');
  write("in/b.txt", long_text);
  const PrepareResult result = prepare(options({(folder_.path() / "in").string()}));
  EXPECT_EQ(documents(result.train), Texts{long_text});
  EXPECT_EQ(result.left_out.lacking, 1);
  EXPECT_EQ(result.left_out.first_lacking,
            pointer + ": a pointer of Git LFS in place of the file: git lfs pull fetches it");
}

TEST_F(Prepare, HiddenAndBinaryFilesAreLeftOutOfFolders) {
  const std::string binary = std::string(900000, 'x') + '\0',
                    stray = "caf\xe9 \x01 and more of it, without more stray bytes";
  write("in/.git/config", "hidden");
  write("in/a/.hidden", "hidden");
  write("in/CVS/Entries", "of version control");
  write("in/a/_metadata", "PAR1\x15 and no more of a dataset's summary");
  write("in/a/b.bin", binary);
  write("in/a/c.png", testing::make_png({8, 8}, 1));
  write("in/a/d.txt", stray);
  const std::string folder = (folder_.path() / "in").string();
  PrepareOptions options = this->options({folder});
  const PrepareResult result = prepare(options);
  EXPECT_EQ(documents(result.train), Texts{stray});
  EXPECT_EQ(result.left_out.hidden, 4);
  EXPECT_EQ(result.left_out.binary, 2);
  EXPECT_EQ(result.left_out.first_binary, folder + "/a/b.bin");
  options.inputs = {folder + "/a/b.bin"};
  expect_fault<DataError>(options, "b.bin: byte 900001 is zero: binary data");
  options.as_bytes = true;
  EXPECT_EQ(documents(prepare(options).train), Texts{binary});
  options.inputs = {folder + "/a/.hidden"};  // named alone
  EXPECT_EQ(documents(prepare(options).train), Texts{"hidden"});
  options.inputs = {write("g", compressed("x", "gzip"))};
  EXPECT_EQ(documents(prepare(options).train), Texts{compressed("x", "gzip")});
  fs::remove(folder + "/a/d.txt");
  // bad input: `prepare`: a folder of hidden and binary files alone | there is no text in ...: 4
  // hidden files, 2 binary files (the first: ...) | 3
  expect_fault<DataError>(this->options({folder}), ": 4 hidden files, 2 binary files (the first: ");
  const std::string tar = make_tar({{"a/.x", "h"}, {"a/b.bin", binary}, {"a/c", "text of a tar"}});
  const PrepareResult of_tar = prepare(this->options({write("t.tar", tar)}));
  EXPECT_EQ(documents(of_tar.train), Texts{"text of a tar"});
  EXPECT_EQ(of_tar.left_out.hidden, 1);
  EXPECT_EQ(of_tar.left_out.binary, 1);
}

}  // namespace
}  // namespace trireme

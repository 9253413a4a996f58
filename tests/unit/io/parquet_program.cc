// parquet_program FILE FIELD...: prints the rows of a Parquet file, a line each, for other tests
// to compare. A value is n (null), its bytes in hexadecimal digits after an x, or (...) around
// what a record or a list holds, with a comma after each. With --count FILE FIELD... it prints how
// many bytes the values have, and in how many seconds they were read.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/parquet/parquet_reader.h"

namespace {

trireme::PosixFile opened(const std::string& path) {
  return {path, O_RDONLY, trireme::ExitStatus::kData};
}

using trireme::parquet::ParquetReader;
using trireme::parquet::Value;

void append(std::string& text, const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      text += 'n';
      return;
    case Value::Kind::kBytes:
      text += 'x';
      for (const char byte : value.bytes) {
        text += "0123456789abcdef"[static_cast<unsigned char>(byte) >> 4];
        text += "0123456789abcdef"[static_cast<unsigned char>(byte) & 15];
      }
      return;
    default:
      text += '(';
      for (const Value& item : value.items) {
        append(text, item);
        text += ',';
      }
      text += ')';
  }
}

int print(ParquetReader& reader) {
  std::vector<Value> row;
  std::string text;
  while (reader.next(row)) {
    text.clear();
    for (const Value& value : row) {
      append(text, value);
      text += ' ';
    }
    text.back() = '\n';
    std::fputs(text.c_str(), stdout);
  }
  return 0;
}

int count(const std::string& path, const std::vector<std::string>& fields) {
  const auto begin = std::chrono::steady_clock::now();
  ParquetReader reader(opened(path), fields);
  std::vector<Value> row;
  std::size_t bytes = 0;
  while (reader.next(row)) {
    for (const Value& value : row) bytes += value.bytes.size();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  fmt::print("{} {}\n", bytes, seconds.count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  const bool counts = words.at(0) == "--count";
  if (counts) words.erase(words.begin());
  const std::vector<std::string> fields(words.begin() + 1, words.end());
  try {
    if (counts) return count(words[0], fields);
    ParquetReader reader(opened(words[0]), fields);
    return print(reader);
  } catch (const trireme::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return static_cast<int>(error.status());
  }
}

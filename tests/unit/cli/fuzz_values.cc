#include "fuzz_values.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace trireme::fuzz {
namespace {

constexpr std::array<std::string_view, 40> kNumbers = {"0",
                                                       "-0",
                                                       "1",
                                                       "-1",
                                                       "2",
                                                       "3",
                                                       "-5",
                                                       "7",
                                                       "255",
                                                       "256",
                                                       "65535",
                                                       "65536",
                                                       "1048576",
                                                       "1073741824",
                                                       "2147483647",
                                                       "2147483648",
                                                       "-2147483648",
                                                       "4294967295",
                                                       "4294967296",
                                                       "9007199254740993",
                                                       "9223372036854775807",
                                                       "9223372036854775808",
                                                       "-9223372036854775808",
                                                       "18446744073709551615",
                                                       "18446744073709551616",
                                                       "1e3",
                                                       "1e-30",
                                                       "1e-320",
                                                       "1e30",
                                                       "1e308",
                                                       "1e309",
                                                       "-1e308",
                                                       "0.5",
                                                       "nan",
                                                       "-nan",
                                                       "inf",
                                                       "-inf",
                                                       "0x10",
                                                       "+1",
                                                       "1_000"};

const std::vector<std::string>& texts() {
  static const std::vector<std::string> kTexts = {"",
                                                  " ",
                                                  "auto",
                                                  "true",
                                                  "false",
                                                  "none",
                                                  "never",
                                                  "dynamic",
                                                  "cpu",
                                                  "cuda",
                                                  "nccl",
                                                  "byte",
                                                  "bpe:0",
                                                  "bpe:300",
                                                  "bpe:2147483648",
                                                  "unigram:1048577",
                                                  "hash:nan",
                                                  "hash:0.5",
                                                  "hash:1e-320",
                                                  "tail:1",
                                                  "tail:18446744073709551615",
                                                  "1,2",
                                                  "1,,2",
                                                  ",",
                                                  "1x1",
                                                  "1048576x1048576",
                                                  "1-",
                                                  "3-1",
                                                  "1-99999999999999999999",
                                                  "1K",
                                                  "1024G",
                                                  "9999999999G",
                                                  "/",
                                                  ".",
                                                  "..",
                                                  "/dev/null",
                                                  "/nonexistent/a/b",
                                                  "../given",
                                                  "../given/data",
                                                  "../given/data/train.h5",
                                                  "../given/run",
                                                  "../given/text.txt",
                                                  "../given/bpe.model",
                                                  "../given/run/checkpoints/step-00000002.h5",
                                                  "../given/data=1e308",
                                                  "../given/data=nan",
                                                  "../given/data=0",
                                                  "../given/data=1e-308,../given/data=1e30",
                                                  "a=b=c",
                                                  "=",
                                                  "\\",
                                                  "\x1b[31mred\x1b[0m",
                                                  "\x1b]0;title\x07",
                                                  "line\nbreak",
                                                  "tab\there",
                                                  "\rback",
                                                  "\x7f",
                                                  "\xff\xfe",
                                                  "\xc3",
                                                  ("\xc2\x9b"
                                                   "31m"),
                                                  "h\xc3\xa9llo \xe6\xbc\xa2\xe5\xad\x97",
                                                  "%s%n%d",
                                                  "{}",
                                                  "{0}{1}",
                                                  "$(true)",
                                                  "`true`",
                                                  "'",
                                                  "\"",
                                                  "\\x1b",
                                                  "\\xZZ",
                                                  "\\",
                                                  "--",
                                                  "-",
                                                  "--help",
                                                  "optim.lr=1,2",
                                                  "run.seed=",
                                                  "=1",
                                                  "12:61:99",
                                                  "1-00:00:00",
                                                  std::string(250, 'a'),
                                                  std::string(300, 'a'),
                                                  std::string(5000, 'b'),
                                                  std::string(100'000, 'c'),
                                                  std::string(300, '\x1b'),
                                                  std::string(300, ','),
                                                  std::string(3000, '/'),
                                                  std::string(400, ' ') + "x",
                                                  "a/" + std::string(300, 'n') + "/b"};
  return kTexts;
}

}  // namespace

std::string number(Draws& draws) {
  return std::string(draws.any_of(kNumbers));
}

std::string value(Draws& draws) {
  if (draws.one_in(2)) return number(draws);
  if (!draws.one_in(8)) return draws.any_of(texts());
  std::string bytes(1 + draws.below(40), ' ');
  for (char& byte : bytes) byte = static_cast<char>(1 + draws.below(255));  // no argument holds a 0
  return bytes;
}

std::string damaged(std::string bytes, Draws& draws) {
  const std::size_t changes = 1 + draws.below(4);
  for (std::size_t i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t at = draws.below(bytes.size());
    const std::size_t length = std::min(bytes.size() - at, 1 + draws.below(16));
    switch (draws.below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << draws.below(8)));
        break;
      case 1:
        for (std::size_t k = 0; k < length; ++k)
          bytes[at + k] = static_cast<char>(draws.below(256));
        break;
      case 2:
        for (std::size_t k = 0; k < length; ++k) bytes[at + k] = draws.one_in(2) ? '\xff' : '\0';
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(draws.below(bytes.size()), length));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

}  // namespace trireme::fuzz

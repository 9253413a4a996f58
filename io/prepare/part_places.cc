#include "io/prepare/part_places.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "trireme/base/error.h"

#include "io/prepare/byte_stream.h"

namespace trireme {
namespace {

constexpr std::uint64_t kLookBytes = std::uint64_t{1} << 16;       // first tried
constexpr std::uint64_t kMostLookBytes = std::uint64_t{64} << 20;  // as long as a text is uncut

class PartPlaces {
 public:
  PartPlaces(const TextInput& input, std::uint64_t step, std::string separator,
             const Tokenizer* tokenizer)
      : input_(input), step_(step), separator_(std::move(separator)), tokenizer_(tokenizer) {}

  // Where a part begins; part 0 begins with the file.
  std::optional<std::uint64_t> begin(std::uint64_t part) const {
    if (part == 0) return 0;
    const std::uint64_t at = part * step_;
    if (input_.json_lines) return behind_newline(at);
    return separator_.empty() ? behind_cut(at) : behind_separator(at);
  }
  // Where the next part that is not empty begins.
  std::uint64_t end(std::uint64_t part) const {
    while (++part * step_ < input_.file.size) {
      if (const auto place = begin(part)) return *place;
    }
    return input_.file.size;
  }

 private:
  std::string read(std::uint64_t begin, std::uint64_t end) const {
    end = std::min(end, input_.file.size);
    std::string bytes(end - begin, '\0');
    bytes.resize(FileBytes(input_.file.path, begin, end).read(bytes.data(), bytes.size()));
    return bytes;
  }

  std::optional<std::uint64_t> behind_newline(std::uint64_t at) const {
    for (std::uint64_t from = at - 1; from + 1 < at + step_; from += kLookBytes) {
      const std::string bytes = read(from, std::min(from + kLookBytes, at + step_ - 1));
      const std::size_t newline = bytes.find('\n');
      if (newline != std::string::npos) return from + newline + 1;
      if (bytes.size() < kLookBytes) break;
    }
    return {};
  }

  // Separators are found from front to back, so one counts for sure if none begins right before it.
  std::optional<std::uint64_t> behind_separator(std::uint64_t at) const {
    const std::uint64_t size = separator_.size();
    for (std::uint64_t from = at; from < at + step_ && from < input_.file.size;
         from += kLookBytes) {
      const std::uint64_t first = from - std::min(from, size - 1);
      const std::uint64_t end = std::min(from + kLookBytes, at + step_);
      const std::string bytes = read(first, end + size - 1);
      std::optional<std::uint64_t> before;
      for (std::size_t found = bytes.find(separator_); found != std::string::npos;
           found = bytes.find(separator_, found + 1)) {
        const std::uint64_t place = first + found;
        if (place >= from && (!before || *before + size <= place)) return place + size;
        before = place;
      }
    }
    return {};
  }

  // The last place that the tokenizer knows before `at`, in lines that begin in the part before.
  std::optional<std::uint64_t> behind_cut(std::uint64_t at) const {
    TRIREME_CHECK(tokenizer_ != nullptr, "a text is cut without its tokenizer");
    const std::uint64_t most = std::min(step_ - 1, kMostLookBytes);
    for (std::uint64_t look = std::min(kLookBytes, most);; look = std::min(look * 16, most)) {
      const std::string bytes = read(at - look, at);
      const std::size_t newline = bytes.find('\n');
      if (newline != std::string::npos) {
        const std::string_view lines = std::string_view(bytes).substr(newline + 1);
        const std::size_t cut = tokenizer_->cut(lines);
        if (cut > 0) return at - look + newline + 1 + cut;
      }
      if (look == most) return {};
    }
  }

  const TextInput& input_;
  std::uint64_t step_;
  std::string separator_;
  const Tokenizer* tokenizer_;
};

}  // namespace

std::pair<std::uint64_t, std::uint64_t> bytes_of_part(const TextInput& input,
                                                      const InputPortion& portion,
                                                      const std::string& separator,
                                                      const Tokenizer* tokenizer) {
  const PartPlaces places(input, portion.step, separator, tokenizer);
  const auto begin = places.begin(portion.part);
  if (!begin) return {0, 0};
  return {*begin, places.end(portion.part)};
}

}  // namespace trireme

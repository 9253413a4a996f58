#include "io/prepare/text_inputs.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

#include "io/files/posix_file.h"
#include "io/prepare/record_format.h"

namespace trireme {
namespace {

class Looker {
 public:
  explicit Looker(const PrepareOptions& options) : options_(options) {}

  TextInputs look() {
    if (options_.inputs.empty()) {
      throw DataError("no input: name text files, folders, or - for stdin");
    }
    for (const std::string& input : options_.inputs) add(input);
    if (found_.files.empty()) refuse_nothing();
    count_bytes();
    return std::move(found_);
  }

 private:
  void add(const std::string& path) {
    if (path == "-" || !is_input_folder(path)) {
      look_at({.file = input_file(path), .named = Named::kAlone});
      return;
    }
    for (InputFile& file : files_below(path, &found_.left_out.pipes)) {
      if (is_hidden(std::string_view(file.path).substr(path.size()))) {
        ++found_.left_out.hidden;
      } else {
        look_at({.file = std::move(file), .named = Named::kInFolder});
      }
    }
  }

  // Refuses what is no text before a tokenizer is trained on it.
  void look_at(TextInput input) {
    TextLook look;
    if (input.file.regular) {
      const PeekedBytes peeked(std::make_unique<FileBytes>(input.file.path, -1),
                               std::min<std::size_t>(input.file.size, kSeenBytes));
      look = look_at_text(input.file.path, peeked.beginning(), input.named, options_);
    }
    if (look.kind == TextKind::kParquet) {
      TextRemarks remarks;
      remarks.left_out = std::move(found_.left_out);
      const auto opened = open_parquet(std::make_unique<FileBytes>(input.file.path, -1),
                                       input.named, options_, remarks);
      found_.left_out = std::move(remarks.left_out);
      if (!opened) return;
      input.row_groups = row_groups_of(PosixFile(input.file.path, O_RDONLY, ExitStatus::kData),
                                       options_.fields.names);
    }
    if (leave_out(input.file.path, look, found_.left_out)) return;
    input.kind = look.kind;
    input.json_lines = look.records.format == RecordFormat::kJsonLines;
    if (look.kind == TextKind::kPlain) input.words = look.words;
    found_.can_draw = found_.can_draw && input.kind == TextKind::kPlain;
    found_.files.push_back(std::move(input));
  }

  [[noreturn]] void refuse_nothing() const {
    const std::string words = words_of(found_.left_out);
    const std::string& first = options_.inputs.front();
    throw DataError(words.empty() ? fmt::format("there are no files in {}", first)
                                  : fmt::format("there is no text in {}: {}", first, words));
  }

  void count_bytes() {
    bool known = true;
    for (const TextInput& input : found_.files) {
      found_.bytes_total += input.file.size;
      known = known && input.file.regular;
    }
    const std::uint64_t limit = options_.input_limit;
    const bool cut = limit > 0 && found_.bytes_total > limit;
    if (!known || (cut && !found_.can_draw)) found_.bytes_total = 0;
    if (cut && found_.can_draw) found_.bytes_total = limit;
  }

  const PrepareOptions& options_;
  TextInputs found_;
};

// Bytes of a portion: enough to be worth a reader's while, and few enough portions for one list.
std::uint64_t portion_bytes(const TextInputs& inputs, const PrepareOptions& options) {
  constexpr std::uint64_t kLeast = std::uint64_t{1} << 20, kMost = 16384;
  if (options.portion_bytes > 0) return options.portion_bytes;
  std::uint64_t all = 0;
  for (const TextInput& input : inputs.files) all += input.file.size;
  return std::max(kLeast, all / kMost);
}

// The steps in which a file is cut: bytes of text, or row groups; 0: it is read whole.
std::uint64_t step_of(const TextInput& input, std::uint64_t most) {
  if (input.file.size <= most) return 0;
  if (input.kind == TextKind::kPlain || input.json_lines) return most;
  if (input.kind != TextKind::kParquet || input.row_groups < 2) return 0;
  return std::max<std::uint64_t>(1, input.row_groups * most / input.file.size);
}

}  // namespace

TextInputs look_at_inputs(const PrepareOptions& options) {
  return Looker(options).look();
}

Json json_of(const LeftOut& left_out) {
  return Json::array({left_out.hidden, left_out.binary, left_out.links, left_out.pipes,
                      left_out.lacking, left_out.first_binary, left_out.first_lacking});
}

LeftOut left_out_of(const Json& json) {
  const auto number = [&](std::size_t i) { return json.at(i).integer(); };
  return {.hidden = number(0),
          .binary = number(1),
          .links = number(2),
          .pipes = number(3),
          .lacking = number(4),
          .first_binary = json.at(5).text(),
          .first_lacking = json.at(6).text()};
}

std::string packed(const TextInputs& inputs) {
  Json files = Json::array();
  for (const TextInput& input : inputs.files) {
    files.push_back(Json::array({input.file.path, input.file.size, input.file.regular,
                                 static_cast<int>(input.named), static_cast<int>(input.kind),
                                 input.json_lines, input.words, input.row_groups}));
  }
  return Json::array(
             {std::move(files), json_of(inputs.left_out), inputs.can_draw, inputs.bytes_total})
      .to_cbor();
}

TextInputs unpacked_inputs(std::string_view text) {
  const Json all = Json::from_cbor(text);
  TextInputs inputs;
  for (const Json& file : all.at(0).items()) {
    inputs.files.push_back({.file = {.path = file.at(0).text(),
                                     .size = file.at(1).unsigned_integer(),
                                     .regular = file.at(2).boolean()},
                            .named = static_cast<Named>(file.at(3).small_integer()),
                            .kind = static_cast<TextKind>(file.at(4).small_integer()),
                            .json_lines = file.at(5).boolean(),
                            .words = file.at(6).text(),
                            .row_groups = file.at(7).unsigned_integer()});
  }
  inputs.left_out = left_out_of(all.at(1));
  inputs.can_draw = all.at(2).boolean();
  inputs.bytes_total = all.at(3).unsigned_integer();
  return inputs;
}

InputPortion whole_of(const TextInputs& inputs) {
  return {
      .first = 0, .end = inputs.files.size(), .part = 0, .step = 0, .bytes = inputs.bytes_total};
}

std::vector<InputPortion> portions_of(const TextInputs& inputs, const PrepareOptions& options) {
  // What comes before a limit is known only once it is read.
  if (options.input_limit > 0) return {whole_of(inputs)};
  const std::uint64_t most = portion_bytes(inputs, options);
  std::vector<InputPortion> portions;
  for (std::size_t i = 0; i < inputs.files.size(); ++i) {
    const TextInput& input = inputs.files[i];
    if (const std::uint64_t step = step_of(input, most)) {
      const std::uint64_t all =
          input.kind == TextKind::kParquet ? input.row_groups : input.file.size;
      const std::uint64_t parts = (all + step - 1) / step;
      for (std::uint64_t part = 0; part < parts; ++part) {
        portions.push_back({i, i + 1, part, step, input.file.size / parts});
      }
      continue;
    }
    const bool joins = !portions.empty() && !portions.back().is_part() &&
                       portions.back().bytes + input.file.size <= most;
    if (!joins) portions.push_back({.first = i, .end = i});
    ++portions.back().end;
    portions.back().bytes += input.file.size;
  }
  return portions;
}

std::vector<int> readers_of(const std::vector<InputPortion>& portions, int ranks) {
  std::vector<std::size_t> order(portions.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](std::size_t i) { return portions[i].bytes; });
  using Load = std::pair<std::uint64_t, int>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int rank = 0; rank < ranks; ++rank) loads.emplace(0, rank);
  std::vector<int> readers(portions.size());
  for (const std::size_t i : order) {
    const auto [bytes, rank] = loads.top();
    loads.pop();
    readers[i] = rank;
    loads.emplace(bytes + portions[i].bytes + 1, rank);
  }
  return readers;
}

}  // namespace trireme

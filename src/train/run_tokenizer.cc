#include "train/run_tokenizer.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/models/family.h"
#include "trireme/setup/checkpoint_tokenizer.h"
#include "trireme/tasks/texts.h"

namespace trireme {
namespace {

// What a start may have written to the run's folder `tokenizer` that has left this checkpoint, or
// taken it up: files as they came with weights, and as other programs read them.
SetsOfFiles earlier_tokenizer_files(const std::optional<Checkpoint>& checkpoint,
                                    std::int64_t context) {
  if (!checkpoint) return {};
  try {
    const TokenizerFiles files = read_tokenizer_files(checkpoint->path(), checkpoint->info().extra);
    return {files.brought, files_for_others(files, context).files};
  } catch (const DataError&) {  // no other program has such a tokenizer
  } catch (const CheckpointError&) {
  }
  return {};
}

}  // namespace

void RunTokenizer::take_brought_files(const Checkpoint& checkpoint) {
  const TokenizerPtr tokenizer = run_.data.tokenizer();
  if (!tokenizer) return;
  const auto& extra = checkpoint.info().extra;
  const auto found = extra.find(kTokensAttribute);
  const std::string tokens = tasks::mark_of(run_.data.encoding(), kTokensAttribute);
  const bool same = found != extra.end() && found->second == tokens;
  run_.runtime.world().read_once([&] {
    files_.brought = brought_files(checkpoint.path());
    // Tokens that stand for the same may still be found in another way.
    const bool is_same_file = std::ranges::any_of(
        files_.brought, [&](const auto& file) { return file.second == tokenizer->model(); });
    if (files_.brought.empty() || (same && is_same_file)) return std::string();
    files_.brought.clear();
    print_line(fmt::format(
        "the files of the tokenizer that came with the weights are not kept: data.train {}",
        tokens.empty() ? "has numbers, and nothing says of which tokenizer (trireme prepare "
                         "--tokens true --tokenizer PATH does)"
        : same         ? "has another file of the same tokens"
        : found != extra.end() ? "has other tokens"
                               : "has a tokenizer, but theirs was not read"));
    return std::string();
  });
}

void RunTokenizer::write_folder(const std::optional<Checkpoint>& checkpoint) {
  files_.tokenizer = run_.data.tokenizer();
  if (!files_.tokenizer) return;
  const std::int64_t context = models::resolve(run_.config.model, {}).plan.length;
  run_.runtime.world().read_once([&] {
    FilesForOthers written;
    try {
      written = files_for_others(files_, context);
    } catch (const DataError&) {  // no other program has such a tokenizer
      return std::string();
    }
    if (!written.remark.empty()) print_line(shown(written.remark, 1000));
    run_.folder.check_still_ours();
    const std::vector<std::string> theirs =
        update_tokenizer_folder(run_.folder.path(), written.files,
                                [&] { return earlier_tokenizer_files(checkpoint, context); });
    if (!theirs.empty()) {
      print_line(fmt::format(
          "{}: not the checkpoint's {}, which generate, predict and export take; it stays as it is",
          run_.folder.file("tokenizer"), fmt::join(theirs, ", ")));
    }
    return std::string();
  });
}

void RunTokenizer::add_to(CheckpointInfo& info, CheckpointTexts& texts) const {
  add_tokenizer(files_, info, texts);
}

}  // namespace trireme

// What `trireme predict` does for models of one task each.
#pragma once

#include <optional>
#include <string>

#include "trireme/base/json.h"
#include "trireme/comm/runtime.h"
#include "trireme/inference/inference.h"
#include "trireme/io/image_shard.h"
#include "trireme/ops/context.h"

#include "cli/inference_arguments.h"
#include "cli/outputs.h"

namespace trireme::cli {

struct PredictArguments {
  InferenceRequest inference;
  std::string input;  // paths, separated by commas
  int micro = 32, top = 5;
  // The one text of --text is a micro-batch of its own.
  int micro_batch() const { return text ? 1 : micro; }
  std::string json;
  // The flags for pictures, and what they say.
  std::optional<std::string> size;
  std::string normalisation;
  std::optional<PictureSize> picture_size;
  std::optional<PixelStatistics> statistics;
  bool skips_bad = false;
  // The flags for texts.
  std::optional<std::string> text;
  std::string tokenizer;
};

// The pictures or texts that are read at a time have at most so many bytes, for every rank holds
// them; a single one may have more.
inline constexpr std::size_t kMostBytesAtOnce = std::size_t{16} << 20;

// A file with a line of JSON for each prediction. Members throw RunFolderError.
class JsonLines {
 public:
  // Collective over the world. There is no such file where the path is empty, and on other ranks
  // than the leading one.
  JsonLines(Runtime& runtime, const std::string& path);
  void add(const Json& line);
  void flush();   // to whoever reads a pipe
  void finish();  // an earlier file is replaced
  // Whether nobody gets what is still to come: standard output cannot be written, and there is no
  // other file.
  bool in_vain() const;

 private:
  NamedOutput file_;
  bool elsewhere_ = false;
  std::string lines_;
};

// Collective over the world. The leading rank prints.
void predict_pictures(Runtime& runtime, ops::Context& ctx, const InferenceModel& model,
                      const PredictArguments& given, JsonLines& json);
void predict_texts(Runtime& runtime, ops::Context& ctx, const InferenceModel& model,
                   const PredictArguments& given, JsonLines& json);

}  // namespace trireme::cli

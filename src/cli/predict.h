// What `trireme predict` does for models of one task each.
#pragma once

#include <fstream>
#include <optional>
#include <string>

#include "trireme/base/json.h"
#include "trireme/comm/runtime.h"
#include "trireme/ops/context.h"
#include "trireme/train/inference.h"

#include "cli/inference_arguments.h"

namespace trireme::cli {

struct PredictArguments {
  InferenceArguments inference;
  std::string input;  // paths, separated by commas
  int micro = 32, top = 5;
  std::string json;
  // Of pictures.
  std::optional<std::string> size;
  std::string normalisation;
  bool skips_bad = false;
  // Of texts.
  std::optional<std::string> text;
  std::string tokenizer;
};

// A file with a line of JSON for each prediction. Members throw ConfigError, which names --json,
// where it cannot be written.
class JsonLines {
 public:
  explicit JsonLines(const std::string& path);  // empty: there is no such file
  void write(const Json& line);
  void finish();

 private:
  void check_written() const;

  std::string path_;
  std::ofstream file_;
};

// Collective over the world. The leading rank prints.
void predict_pictures(Runtime& runtime, ops::Context& ctx, const InferenceModel& model,
                      const PredictArguments& given);
void predict_texts(Runtime& runtime, ops::Context& ctx, const InferenceModel& model,
                   const PredictArguments& given);

}  // namespace trireme::cli

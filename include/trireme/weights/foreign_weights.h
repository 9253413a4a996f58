// Weights from and for other programs: safetensors into a checkpoint, and a checkpoint into
// safetensors or a graph of ONNX.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/comm/runtime.h"
#include "trireme/models/family.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

struct ImportRequest {
  std::string from;              // a file of safetensors, or a folder of them (io/safetensors.h)
  std::string run_folder;        // that gets the checkpoint
  models::ModelRequest model;    // counts more than what a config.json beside the files says
  double timeout = 600;          // seconds, comm.timeout; the bytes of the weights add to it
  bool allow_nonfinite = false;  // NaN and infinite weights are taken, too
};

struct ImportResult {
  std::string format;  // ForeignModel::format
  std::string model;   // ModelPlan::description
  std::int64_t parameters = 0;
  std::int64_t context = 0;           // of a model of texts, the longest one, in tokens
  std::string checkpoint;             // its path
  std::string config;                 // the path of a config.ini with the model's keys
  std::vector<std::string> not_read;  // fields of config.json that we do not know
  std::string untied;                 // a head that the description ties, and that is its own
  std::vector<std::string> left_out;  // tensors of parts that our model does not have
  // On rank 0: the tokenizer beside the weights, for people, and why there is none.
  std::string tokenizer, no_tokenizer;
  std::vector<std::string> files_left_out;  // of those of the tokenizer: "PATH: why"
};

// Collective over the world. Writes a checkpoint of step 0 with weights and states, and without an
// optimizer's. Of models of texts it takes the tokenizer's files in the same folder along. Each
// rank holds an equal part of the model, whatever tensors it lies in. Throws DataError for files
// that are missing, malformed, or hold another model, ConfigError for a model that cannot be had or
// does not fit into the memory of the nodes, RunFolderError for the folder.
ImportResult import_weights(Runtime& runtime, const ImportRequest& request);

// The names of the files of a model as a graph of ONNX.
inline constexpr const char* kOnnxName = "model.onnx";
inline constexpr const char* kOnnxDataName = "model.onnx.data";

struct ExportRequest {
  enum class Format { kSafetensors, kOnnx };

  std::string checkpoint;  // or a run folder
  std::string folder;
  std::string weights = "last";  // or "average": optim.average
  Format format = Format::kSafetensors;
  DType dtype = DType::kF32;                        // or bf16, fp16
  std::int64_t most_bytes = std::int64_t{5} << 30;  // of the tensors of a file of safetensors
};

struct ExportResult {
  std::string checkpoint;
  std::string format;  // ForeignModel::format, or how large the graph is
  std::size_t tensors = 0;
  std::int64_t bytes = 0;          // of the tensors
  std::vector<std::string> files;  // names in the folder
  std::string remark = {};         // on rank 0: on the tokenizer's files
  std::string not_finite;          // how many weights are NaN or infinite, and where; empty: none
};

// Collective over the world. Writes the weights and states of a checkpoint, with config.json and
// the tokenizer's files where safetensors have them, or the model's graph. A rank holds no more at
// a time than its part of some tensors. Throws CheckpointError, ConfigError for a model that the
// format does not have, DataError for a number that the type cannot hold, RunFolderError for the
// folder.
ExportResult export_weights(Runtime& runtime, const ExportRequest& request);

}  // namespace trireme

// The types of decoders in transformers that our models can be: a table.
#pragma once

#include <string>
#include <vector>

#include "models/gpt/config_fields.h"
#include "models/gpt/gpt.h"

namespace trireme::models {

// One of their layers, or of their norms, inside a block. `ours` are its names inside ours; several
// are one tensor of theirs.
struct NamedLayer {
  enum class Fused {
    kStacked,     // one behind the other along the rows
    kByHead,      // the rows of the first head of each, then those of the second, ...
    kTransposed,  // one behind the other; the matrix is (in, out)
  };
  std::string theirs;
  std::vector<std::string> ours;
  Fused fused = Fused::kStacked;
};

// How a type names its tensors.
struct TensorNames {
  std::string prefix = "model.";  // of all but the head
  std::string embedding = "embed_tokens";
  std::string positions = {};  // learned ones; empty: it has none
  std::string layers = "layers";
  std::vector<NamedLayer> layer = {};  // those that a model does not have are left out
  std::string norm = "norm";
  std::string head = "lm_head";
  std::string older_head = {};                                 // how older files have it
  std::vector<std::string> unused = {".rotary_emb.inv_freq"};  // as ForeignModel::unused
};

struct ModelType {
  const char* name;          // model_type
  const char* title;         // for messages: "Llama"
  const char* architecture;  // the class that loads it
  // Lists the fields of config.json, for both ways. In reading the model has its built-in choices
  // before.
  void (*fields)(ConfigFields& fields, GptConfig& c);
  TensorNames (*names)();
};

// An export takes the first one that describes its model.
std::vector<ModelType> llama_types();
std::vector<ModelType> gemma_types();
std::vector<ModelType> other_types();

// Blocks as Llama's without biases: RMS norms, a gated MLP, rotary positions.
void begin_llama(GptConfig& c);
// Llama's names, with these of the norms.
TensorNames llama_names(std::vector<NamedLayer> norms);
TensorNames names_with_norms_before();
TensorNames names_with_norms_after();

}  // namespace trireme::models

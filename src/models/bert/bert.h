// BERT (Devlin et al. 2019): a bidirectional transformer with norms behind the residual sums, which
// predicts tokens that were masked. Embedding and head share their matrix. GELU is the one by the
// error function. Initial values are normal with deviation 0.02 for weights, positions and
// segments, 0 for biases, 1 for weights of norms; norms and biases do not decay. The published
// models have dropout 0.1, and as much of the attention's weights, which ours never drop.
#pragma once

#include <string_view>
#include <vector>

#include "trireme/models/family.h"

#include "models/transformer.h"

namespace trireme::models {

struct BertConfig {
  std::int64_t layers = 12;
  std::int64_t width = 768;
  std::int64_t heads = 12;
  std::int64_t hidden = 3072;  // width inside the MLP
  std::int64_t vocabulary = 30522;
  std::int64_t context = 512;  // positions
  double norm_epsilon = 1e-12;
  double dropout = 0.0;  // after the embedding and in each residual branch
  // The wanted type of the loss's logits, fp32 or bf16 (nn::type_of_logits).
  DType logits = DType::kF32;

  // The targets of a sample for the model's costs: 15 % of its tokens, as published. A micro-batch
  // says how many there really are.
  std::int64_t targets() const;
};

// The segments that the model tells apart. The data have one, the first, so training changes the
// first row of their table alone, but for weight decay.
inline constexpr std::int64_t kBertSegments = 2;

// The preset of that name. Throws ConfigError for an unknown one; the message lists the known.
BertConfig bert_preset(std::string_view name);
std::vector<std::string_view> bert_preset_names();

// What all of its blocks have.
TransformerSizes transformer_sizes(const BertConfig& config);

// Throws ConfigError if the numbers do not fit together.
void check(const BertConfig& config);

// The blocks are the embedding, one block for each layer, and the head. A micro-batch has the
// fields kTokens, kTargetRows, kTargets and, where samples are padded, kKeyEnd.
nn::ModelPlan bert_plan(const BertConfig& config);

// The same as the registry gives it.
Model bert_model(const BertConfig& config);

}  // namespace trireme::models

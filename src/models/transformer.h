// The block that all transformers are made of.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "trireme/models/operations.h"
#include "trireme/nn/layers.h"

namespace trireme::models {

// Where the norms of a block stand, and what its two branches read.
enum class BlockLayout {
  kBefore,           // x += attention(norm(x)), then x += mlp(norm(x))
  kBehindSum,        // x = norm(x + attention(x)), then x = norm(x + mlp(x)) (BERT)
  kAfter,            // x += norm(attention(x)), then x += norm(mlp(x)) (OLMo 2)
  kBoth,             // x += norm(attention(norm(x))), then the same with mlp (Gemma 2)
  kParallel,         // x += attention(norm(x)) + mlp(another norm(x)) (GPT-NeoX)
  kParallelOneNorm,  // x += attention(y) + mlp(y) with y = norm(x) (Cohere)
};

// What the families of transformers say of their blocks.
struct TransformerSizes {
  std::int64_t length = 0;  // positions of a sample
  std::int64_t width = 0, heads = 0, kv_heads = 0, hidden = 0;
  nn::NormKind norm = nn::NormKind::kLayer;
  float norm_epsilon = 1e-5f;
  nn::ActivationKind activation = nn::ActivationKind::kGelu;
  nn::PositionKind positions = nn::PositionKind::kLearned;  // learned ones enter elsewhere
  nn::Rotations rotations = {};                             // where positions are rotary
  nn::Biases biases = {};
  bool causal = true;
  // Whether a sample has this length in every micro-batch. Otherwise MicroBatch::length counts, and
  // generation brings in fewer positions.
  bool fixed_length = false;
  BlockLayout layout = BlockLayout::kBefore;
  bool norm_plus_one = false;      // norms multiply by 1 + weight
  float residual_scale = 1.0f;     // multiplies what a branch adds to the stream
  std::int64_t head_channels = 0;  // of a head; 0: width / heads
  nn::QueryKeyNorm query_key_norm = nn::QueryKeyNorm::kNone;
  float attention_scale = 0.0f;  // AttentionShape::scale, ::cap and ::window
  float attention_cap = 0.0f;
  std::int64_t window = 0;
  const char* kind = "layer";  // BlockPlan::kind: blocks of a kind cost the same
  float dropout = 0.0f;        // in each residual branch
  float deviation = 0.02f,
        output_deviation = 0.02f;  // of initial weights, of those into the stream

  ops::AttentionShape attention(std::int64_t samples) const {
    return {.batch = samples,
            .length = length,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_size = head_size(),
            .causal = causal,
            .window = window,
            .scale = attention_scale,
            .cap = attention_cap};
  }
  std::int64_t head_size() const { return head_channels > 0 ? head_channels : width / heads; }
  // The rows of the first product inside the MLP.
  std::int64_t up() const { return nn::is_gated(activation) ? 2 * hidden : hidden; }
};

// Multi-head attention and an MLP, each with a residual path around it, and norms as the layout
// says. Parameters blocks.LAYER.attention and .mlp; .norm1 and .norm2 of the norms before them or
// behind the sums; .norm1_after and .norm2_after of those of what the branches return.
class TransformerBlock : public nn::Block {
 public:
  TransformerBlock(const TransformerSizes& sizes, nn::BuildContext& build, int layer);
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override;

 private:
  TransformerBlock(const TransformerSizes& sizes, nn::BuildContext& build, int layer,
                   const nn::LayerContext& context);
  std::optional<nn::Norm> norm(const nn::LayerContext& context, const char* name, bool there) const;
  // What attention and MLP of x add to the stream; and what is done with the result of branch 0 or
  // 1.
  nn::Value attended(nn::Tape& tape, const nn::MicroBatch& batch, const nn::Value& x) const;
  nn::Value fed(nn::Tape& tape, const nn::MicroBatch& batch, const nn::Value& x) const;
  nn::Value finished(nn::Tape& tape, const nn::MicroBatch& batch, const nn::Value& x,
                     int branch) const;
  // The stream with that, in one product where the branch's result is added as it is.
  nn::Value add_attended(nn::Tape& tape, const nn::MicroBatch& batch, const nn::Value& stream,
                         const nn::Value& x) const;
  nn::Value add_fed(nn::Tape& tape, const nn::MicroBatch& batch, const nn::Value& stream,
                    const nn::Value& x) const;
  bool adds_results(const nn::MicroBatch& batch) const;

  TransformerSizes sizes_;
  int layer_;
  nn::TensorParallel parallel_;
  std::optional<nn::Norm> norm1_;
  nn::Attention attention_;
  std::optional<nn::Norm> norm1_after_, norm2_;
  nn::Mlp mlp_;
  std::optional<nn::Norm> norm2_after_;
};

nn::TensorParallel tensor_parallel(const nn::BuildContext& build);

// The matrix of a vocabulary, which the embedding and the head of a model may share.
struct VocabularyTable {
  std::int64_t vocabulary = 0, width = 0;
  bool tied = true;         // one matrix for both, under the embedding's name
  float deviation = 0.02f;  // of initial values
};
inline constexpr const char* kEmbeddingName = "embedding.weight";
// Returns the matrix of the embedding (kEmbeddingName) or of the head. If they are tied they share
// it (BuildContext::share).
nn::Parameter& vocabulary_table(nn::ParameterSet& parameters, nn::BuildContext& build,
                                const VocabularyTable& table, const char* name);

// The micro-batch as blocks see it whose samples have `length` positions, whatever has a target.
nn::MicroBatch with_length(const nn::MicroBatch& batch, std::int64_t length);

// Throws ConfigError if the sizes do not fit together. The message names the keys model.*.
void check(const TransformerSizes& sizes);

// BlockPlan::boundary of rows of `width`, of samples of `length` positions; 0: as many as
// MicroBatch::length says.
std::function<std::vector<nn::BoundaryTensor>(std::int64_t, std::int64_t,
                                              const nn::TensorParallel&)>
stream_of(std::int64_t width, std::int64_t length);

// Appends the blocks of a model's layers, "blocks.0" and so on. sizes_of(LAYER) are a layer's.
void add_layers(nn::ModelPlan& plan,
                const std::function<const TransformerSizes&(std::int64_t)>& sizes_of,
                std::int64_t layers);
// The same where all layers have these sizes.
void add_layers(nn::ModelPlan& plan, const TransformerSizes& sizes, std::int64_t layers);

// "12 layers, width 768, 12 heads".
std::string sizes_text(const TransformerSizes& sizes, std::int64_t layers);

// The operations of a block, for a micro-batch of so many samples.
std::vector<Operation> layer_operations(const TransformerSizes& sizes, std::int64_t samples);

}  // namespace trireme::models

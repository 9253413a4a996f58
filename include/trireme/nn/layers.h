// The layers of which blocks are made. Each declares its parameters in the block's ParameterSet
// when it is built, and records its operations on the tape when it is called. Rows are positions of
// samples: see MicroBatch.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/nn/block.h"
#include "trireme/nn/tensor_parallel.h"
#include "trireme/ops/attention.h"

namespace trireme::nn {

// Where a layer declares its parameters.
struct LayerContext {
  ParameterSet& parameters;
  TensorParallel parallel;
  std::string name;  // "blocks.3.attention"

  LayerContext child(const std::string& part) const {
    return {parameters, parallel, name.empty() ? part : name + "." + part};
  }
};

Value add(Tape& tape, const Value& a, const Value& b);

// Zeroes elements of x (outside rows, C) at `rate` in training. `layer` tells a model's dropouts
// apart.
Value dropout(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch, const Value& x,
              float rate, std::uint32_t layer);

enum class NormKind { kLayer, kRms };
enum class ActivationKind { kGelu, kSwiglu };
enum class PositionKind { kLearned, kRotary };

// Layer norm or RMS norm over the last dimension, on outside rows. Weights are whole on every
// tensor rank.
class Norm {
 public:
  Norm(const LayerContext& context, NormKind kind, std::int64_t width, bool bias);
  Value forward(Tape& tape, const Value& x) const;
  // x + branch, and the norm of it.
  struct Added {
    Value sum, normed;
  };
  Added forward_added(Tape& tape, const Value& x, const Value& branch) const;

 private:
  // The rows' statistics, which the backward needs; RMS norm has no mean.
  struct Statistics {
    Tensor mean, rstd;
  };
  Statistics allocate_statistics(ops::Context& ctx, std::int64_t rows) const;
  Value record(Tape& tape, const Value& x, const Tensor& y, const Statistics& statistics) const;
  void backward_input(Tape& tape, const Value& x, const Statistics& statistics,
                      const Tensor& dy) const;
  Tensor bias() const { return bias_ ? bias_->weight() : Tensor(); }

  NormKind kind_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

// y (rows, local out) = x (rows, in) W^T + b, where W is several parameters side by side, each with
// its rows split over the tensor ranks. x has entered the tensor-parallel part.
class ColumnParallelLinear {
 public:
  struct Part {
    std::string name;   // "query": parameters NAME.weight and NAME.bias
    std::int64_t rows;  // global
    int parts;          // into how many equal ranges the rows are split
    int index;          // the range that is here
    Copies copies;      // of that range
  };
  ColumnParallelLinear(const LayerContext& context, const std::vector<Part>& parts, std::int64_t in,
                       bool bias, float deviation);
  // `parts` equal for all tensor ranks: one matrix of `rows` rows.
  static Part split_part(const LayerContext& context, const std::string& name, std::int64_t rows);
  Value forward(Tape& tape, const Value& x) const;

  // gelu(forward(x)). Who reads y gives the gradient of `pre`, and adds that of `bias` on the way,
  // for which pre's gradient need not be read again.
  struct Activated {
    Value pre;
    Tensor y;                               // gelu(pre)
    std::function<Tensor()> bias_gradient;  // as it is at the time; undefined without a bias
  };
  Activated forward_gelu(Tape& tape, const Value& x) const;

 private:
  std::vector<const Parameter*> parameters() const;

  std::vector<Parameter*> weights_, biases_;
};

// y (outside rows, out) = sum over the tensor ranks of x (rows, local in) W^T, + b: leaves the
// tensor-parallel part.
class RowParallelLinear {
 public:
  RowParallelLinear(const LayerContext& context, std::int64_t out, std::int64_t in, bool bias,
                    float deviation);
  Value forward(Tape& tape, const Value& x) const;
  Value forward(Tape& tape, const ColumnParallelLinear::Activated& x) const;  // of x.y

 private:
  // The gradient of x goes to `source`, by input_gradient.
  Value forward(Tape& tape, const Tensor& x, const Value& source,
                Tape::InputGradient input_gradient) const;

  TensorParallel parallel_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

// Throws ConfigError where attention with so many heads cannot be shared by the tensor ranks.
void check_heads_fit(std::int64_t heads, std::int64_t kv_heads, int tensor_ranks);

// Causal self-attention, heads split over the tensor ranks.
class Attention {
 public:
  struct Options {
    std::int64_t width, heads, kv_heads;
    bool bias;
    PositionKind positions;
    float rotary_theta;
    float deviation, output_deviation;  // of the initial values
    int layer;                          // of the model: its place in the KeyValueCache
  };
  // Throws ConfigError where the tensor ranks cannot split the heads. The first layer of a stage
  // makes the communicator that adds up copied key and value heads: collective over the tensor
  // dimension.
  Attention(const LayerContext& context, BuildContext& build, const Options& options);
  Value forward(Tape& tape, const MicroBatch& batch, const Value& x) const;

 private:
  ops::AttentionShape shape(const MicroBatch& batch) const;
  Value attend(Tape& tape, const MicroBatch& batch, const Value& qkv) const;
  Value attend_cached(Tape& tape, const MicroBatch& batch, const Value& qkv) const;
  Value rotate(Tape& tape, const MicroBatch& batch, const Value& qkv) const;

  Options options_;
  TensorParallel parallel_;
  std::int64_t local_heads_, local_kv_heads_;
  std::shared_ptr<Communicator> copies_;  // ranks with the same key and value heads, or none
  std::unique_ptr<ColumnParallelLinear> qkv_;
  std::unique_ptr<RowParallelLinear> output_;
};

// The feed-forward part: up, GELU, down; or gate and up, SwiGLU, down.
class Mlp {
 public:
  Mlp(const LayerContext& context, ActivationKind activation, std::int64_t width,
      std::int64_t hidden, bool bias, float deviation, float output_deviation);
  Value forward(Tape& tape, const Value& x) const;

 private:
  ActivationKind activation_;
  TensorParallel parallel_;
  std::unique_ptr<ColumnParallelLinear> up_;
  std::unique_ptr<RowParallelLinear> down_;
};

// Token embedding with the vocabulary split over the tensor ranks: (rows) -> (outside rows, C).
class VocabularyEmbedding {
 public:
  VocabularyEmbedding(const LayerContext& context, Parameter& table);
  Value forward(Tape& tape, const MicroBatch& batch) const;

 private:
  TensorParallel parallel_;
  Parameter& table_;
};

// Learned positions, added to x (outside rows, C).
class LearnedPositions {
 public:
  LearnedPositions(const LayerContext& context, std::int64_t positions, std::int64_t width,
                   float deviation);
  Value forward(Tape& tape, const MicroBatch& batch, const Value& x) const;

 private:
  TensorParallel parallel_;
  Parameter* table_;
};

// The vocabulary matrix (vocabulary, C), its rows split over the tensor ranks: input embedding,
// output projection, or both where they are tied.
ParameterSpec vocabulary_parameter(const std::string& name, const TensorParallel& parallel,
                                   std::int64_t vocabulary, std::int64_t width, float deviation);

// The logits of one slice of rows take at most this many bytes in fp32.
inline constexpr std::int64_t kLogitSliceBytes = std::int64_t{32} << 20;

// Projects x (outside rows, C) to the vocabulary and adds the cross entropy over the batch's
// targets to batch.loss_sum. Works through slices of rows, so the logits of all rows never exist at
// once; on a recording tape the gradients are computed along the way (x's is kept, the table's
// added at once).
void vocabulary_loss(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                     const Value& x, Parameter& table);

// Logits (batch, vocabulary) fp32 of the last position of each sample, on every tensor rank.
Tensor last_logits(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                   const Value& x, const Parameter& table);

}  // namespace trireme::nn

// The layers that blocks are made of. A layer declares its parameters in the block's ParameterSet
// when it is built, and records its operations on the tape when it is called. Rows are positions of
// samples: see MicroBatch. "outside rows" is the number of rows that a rank holds outside
// tensor-parallel parts: see TensorParallel::outside_rows.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/nn/block.h"
#include "trireme/nn/tensor_parallel.h"
#include "trireme/nn/vocabulary_sizes.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/head_norm.h"
#include "trireme/ops/softmax_loss.h"

namespace trireme::nn {

// Where a layer declares its parameters.
struct LayerContext {
  ParameterSet& parameters;
  TensorParallel parallel;
  std::string name;           // "blocks.3.attention"
  bool block_scaled = false;  // BuildContext::block_scaled, for layers that may follow it

  LayerContext child(const std::string& part) const {
    return {parameters, parallel, name.empty() ? part : name + "." + part, block_scaled};
  }
};

Value add(Tape& tape, const Value& a, const Value& b);

// GELU by the error function (ops::gelu_erf), of any shape.
Value gelu_erf(Tape& tape, const Value& x);

// factor * x, rounded to x's type; x itself if the factor is 1.
Value scaled(Tape& tape, const Value& x, float factor);

// In training, sets elements of x (outside rows, C) to zero with probability `rate` and scales the
// others by 1 / (1 - rate). Otherwise returns x. Each dropout of a model has its own `layer`
// number.
Value dropout(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch, const Value& x,
              float rate, std::uint32_t layer);

enum class NormKind { kLayer, kRms };
enum class ActivationKind { kGelu, kGeluErf, kSwiglu, kGeglu };  // kGelu, kGeglu: by tanh
constexpr bool is_gated(ActivationKind kind) {
  return kind == ActivationKind::kSwiglu || kind == ActivationKind::kGeglu;
}
enum class PositionKind { kLearned, kRotary };
// RMS norms of queries and keys before they turn: of each head, with one weight for all heads
// (Qwen 3), or of all heads together (OLMo 2).
enum class QueryKeyNorm { kNone, kHead, kWidth };

// Which of a block's layers have biases.
struct Biases {
  bool qkv = true, output = true, mlp = true, norm = true;

  static Biases all(bool have) { return {have, have, have, have}; }
  bool operator==(const Biases&) const = default;
};

// The rotation of a model's positions. From `far_from` positions on (0: never) a sequence turns by
// `far` (LongRoPE).
struct Rotations {
  ops::Rotation near = {}, far = {};
  std::int64_t far_from = 0;

  // The one for sequences of so many positions.
  const ops::Rotation& of(std::int64_t positions) const {
    return far_from > 0 && positions > far_from ? far : near;
  }
  bool operator==(const Rotations&) const = default;
};

// Layer norm or RMS norm over the last dimension of x (outside rows, C). Every tensor rank holds
// the whole weights.
class Norm {
 public:
  // plus_one: an RMS norm multiplies by 1 + weight, and weights begin as 0.
  Norm(const LayerContext& context, NormKind kind, std::int64_t width, bool bias,
       float epsilon = 1e-5f, bool plus_one = false);
  Value forward(Tape& tape, const Value& x) const;
  // Returns x + branch and the norm of that sum. The backward of a layer norm makes the column sums
  // of branch's gradient where that has a place for them.
  struct Added {
    Value sum, normed;
  };
  Added forward_added(Tape& tape, const Value& x, const Value& branch) const;

 private:
  // Statistics of each row, saved for the backward. RMS norm has no mean.
  struct Statistics {
    Tensor mean, rstd;
  };
  Statistics allocate_statistics(ops::Context& ctx, std::int64_t rows) const;
  void normalize(ops::Context& ctx, const Tensor& x, const Tensor& y,
                 const Statistics& statistics) const;
  Value record(Tape& tape, const Value& x, const Tensor& y, const Statistics& statistics,
               const std::shared_ptr<ColumnSums>& sums = {}) const;
  // Where the gradient of x is to be written, and what of it is there already.
  struct InputGradient {
    Tensor rest, dx;
  };
  static InputGradient begin_backward(Tape& tape, const Value& x, const Tensor& dy);
  void backward(Tape& tape, const Value& x, const Statistics& statistics, const Tensor& dy,
                ColumnSums* sums) const;
  void backward_input(Tape& tape, const Value& x, const Statistics& statistics,
                      const Tensor& dy) const;
  ops::NormFactor factor() const { return {weight_->weight(), plus_}; }
  Tensor bias() const { return bias_ ? bias_->weight() : Tensor(); }
  Tensor bias_gradient() const { return bias_ ? bias_->gradient() : Tensor(); }

  NormKind kind_;
  float epsilon_, plus_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
};

// The initial values of a linear layer; of a deviation alone: normal weights, and biases of 0.
struct LinearInitial {
  LinearInitial(float deviation) : weight(Initializer::normal(deviation)) {}
  LinearInitial(const Initializer& of_weight, const Initializer& of_bias)
      : weight(of_weight), bias(of_bias) {}

  Initializer weight, bias;
};

// y (rows, local out) = x (rows, in) W^T + b. W packs several parameters one below the other, and
// the rows of each are split over the tensor ranks. The caller has passed x through enter(). Both
// linear layers throw ConfigError where they are block_scaled and W has no whole blocks of 128.
class ColumnParallelLinear {
 public:
  struct Part {
    std::string name;   // "query": parameters NAME.weight and NAME.bias
    std::int64_t rows;  // global
    int parts;          // the number of equal ranges that the rows are split into
    int index;          // the range that this rank holds
    Holders holders;    // of this range
    bool inner = true;  // ParameterSpec::inner_matrix
    int heads = 1;      // ParameterSpec::heads
  };
  ColumnParallelLinear(const LayerContext& context, const std::vector<Part>& parts, std::int64_t in,
                       bool bias, const LinearInitial& initial);
  // A part whose `rows` rows are split evenly over all tensor ranks, with no copies.
  static Part split_part(const LayerContext& context, const std::string& name, std::int64_t rows,
                         bool inner = true);
  Value forward(Tape& tape, const Value& x) const;

  // gelu(forward(x)). The operation that reads y must hand the tape the gradient of `pre` and make
  // the bias's sums itself, so that pre's gradient is not read a second time for it. They are added
  // to the bias's gradient with the other weight gradients, which may be deferred: until then that
  // gradient may belong to an earlier run of micro-batches.
  struct Activated {
    Value pre;
    Value y;                            // gelu(pre), without a gradient of its own
    std::shared_ptr<Tensor> bias_sums;  // null without a bias
  };
  Activated forward_gelu(Tape& tape, const Value& x) const;

 private:
  std::vector<const Parameter*> parameters() const;
  Value forward_scaled(Tape& tape, const Value& x, Tape::WeightGradient bias_gradient) const;

  std::vector<Parameter*> weights_, biases_;
  bool block_scaled_;
};

// y (outside rows, out) = (the sum of x (rows, local in) W^T over the tensor ranks) + b. It ends
// the tensor-parallel part: it calls leave(). With `addend` (outside rows, out) it returns
// add(addend, y); a GPU without other tensor ranks then adds within the product, and rounds once.
class RowParallelLinear {
 public:
  RowParallelLinear(const LayerContext& context, std::int64_t out, std::int64_t in, bool bias,
                    float deviation);
  Value forward(Tape& tape, const Value& x, const Value* addend = nullptr) const;
  // The same for x.y.
  Value forward(Tape& tape, const ColumnParallelLinear::Activated& x,
                const Value* addend = nullptr) const;

 private:
  // input_gradient adds the gradient of x to `source`.
  Value forward(Tape& tape, const Value& x, const Value& source, Tape::InputGradient input_gradient,
                const Value* addend) const;
  // The same where input_gradient is given the gradient of x.
  Value forward_scaled(Tape& tape, const Value& x, const Value& source,
                       std::function<void(Tape&, const Tensor& dx)> input_gradient,
                       const Value* addend) const;
  // Whether bias and addend are added within the product. A GPU does that where the product is no
  // part of a sum over ranks. On a CPU it would save little, and change bits.
  bool adds_within(const ops::Context& ctx) const;
  // The bias, if it is.
  const Parameter* bias_within(const ops::Context& ctx) const;
  // What follows the product.
  Value finished(Tape& tape, const Value& product, const Value* addend) const;
  Value with_bias(Tape& tape, const Value& sum) const;
  // A place for the sums that are the bias's gradient, if a GPU may make them where it makes y's.
  std::shared_ptr<ColumnSums> place_of_sums(const Tape& tape) const;
  void add_bias_gradient(Tape& tape, const Tensor& dy, const ColumnSums* made) const;

  TensorParallel parallel_;
  Parameter* weight_;
  Parameter* bias_ = nullptr;
  bool block_scaled_;
};

// Throws ConfigError if attention with these numbers of heads cannot be split over the tensor
// ranks.
void check_heads_fit(std::int64_t heads, std::int64_t kv_heads, int tensor_ranks);

// RMS norms of the queries and keys of packed QKV, of this rank's heads (ops::HeadNorm).
// Parameters NAME.query_norm.weight and NAME.key_norm.weight.
class HeadNorms {
 public:
  struct Options {
    bool whole;                               // all heads together, on all tensor ranks
    std::int64_t heads, kv_heads, head_size;  // of the model
    float epsilon;
    bool plus_one;
  };
  // `key`: the part of the key heads that this rank holds.
  HeadNorms(const LayerContext& context, const Options& options,
            const ColumnParallelLinear::Part& key);
  // qkv has the packed rows of `shape`.
  Value forward(Tape& tape, const ops::AttentionShape& shape, const Value& qkv) const;

 private:
  ops::HeadNorm norm(const ops::AttentionShape& shape) const;
  // Adds up sums (rows, groups) over the tensor ranks, where they share groups.
  void add_up(ops::Context& ctx, const Tensor& sums) const;

  Options options_;
  TensorParallel parallel_;
  float key_share_;
  Parameter *query_, *key_;
};

// Self-attention. The heads are split over the tensor ranks. The fields kFirstKey and kKeyEnd
// narrow what a position reads.
class Attention {
 public:
  struct Options {
    std::int64_t width = 0, heads = 0, kv_heads = 0, head_size = 0;
    Biases biases = {};
    Rotations rotations = {};  // without frequencies queries and keys do not turn
    QueryKeyNorm norm = QueryKeyNorm::kNone;
    float norm_epsilon = 1e-5f;
    bool norm_plus_one = false;      // as Norm's
    float scale = 0.0f, cap = 0.0f;  // as AttentionShape's
    std::int64_t window = 0;
    float deviation = 0.02f, output_deviation = 0.02f;  // of the initial values
    int layer = 0;       // number in the model: the index in KeyValueCache::layers
    bool causal = true;  // otherwise positions read later ones too, and there is no generation
  };
  // Collective over the tensor dimension: the first layer of a stage makes the communicator that
  // adds up the gradients of copied key and value heads. Throws ConfigError if the heads cannot be
  // split over the tensor ranks.
  Attention(const LayerContext& context, BuildContext& build, const Options& options);
  // `addend` is RowParallelLinear's.
  Value forward(Tape& tape, const MicroBatch& batch, const Value& x,
                const Value* addend = nullptr) const;

 private:
  ops::AttentionShape shape(const MicroBatch& batch) const;
  Value attend(Tape& tape, const MicroBatch& batch, const Value& qkv) const;
  Value attend_cached(Tape& tape, const MicroBatch& batch, const Value& qkv) const;
  Value rotate(Tape& tape, const MicroBatch& batch, const Value& qkv) const;

  Options options_;
  TensorParallel parallel_;
  std::int64_t local_heads_, local_kv_heads_;
  std::unique_ptr<ColumnParallelLinear> qkv_;
  std::unique_ptr<HeadNorms> norms_;  // or null
  std::unique_ptr<RowParallelLinear> output_;
};

// The feed-forward layer: up, GELU in one of its forms, down; or gate and up, SwiGLU or GeGLU,
// down.
class Mlp {
 public:
  Mlp(const LayerContext& context, ActivationKind activation, std::int64_t width,
      std::int64_t hidden, bool bias, float deviation, float output_deviation);
  // `addend` is RowParallelLinear's.
  Value forward(Tape& tape, const Value& x, const Value* addend = nullptr) const;

 private:
  ActivationKind activation_;
  TensorParallel parallel_;
  std::unique_ptr<ColumnParallelLinear> up_;
  std::unique_ptr<RowParallelLinear> down_;
};

// Token embedding of the field kTokens: (rows) -> (outside rows, C). The vocabulary is split over
// the tensor ranks.
class VocabularyEmbedding {
 public:
  VocabularyEmbedding(const LayerContext& context, Parameter& table);
  Value forward(Tape& tape, const MicroBatch& batch) const;

 private:
  TensorParallel parallel_;
  Parameter& table_;
};

// Adds learned position embeddings to x (outside rows, C), in place.
class LearnedPositions {
 public:
  LearnedPositions(const LayerContext& context, std::int64_t positions, std::int64_t width,
                   float deviation, bool decay = true);
  Value forward(Tape& tape, const MicroBatch& batch, const Value& x) const;

 private:
  TensorParallel parallel_;
  Parameter* table_;
};

// The vocabulary matrix (vocabulary, C), whose rows are split over the tensor ranks and padded in
// memory to a multiple (vocabulary_sizes.h). It is the input embedding, the output projection, or
// both if they are tied.
ParameterSpec vocabulary_parameter(const std::string& name, const TensorParallel& parallel,
                                   std::int64_t vocabulary, std::int64_t width, float deviation,
                                   std::int64_t multiple = kVocabularyMultiple);

// A bias (vocabulary) of the output projection, split and padded as the matrix.
ParameterSpec vocabulary_bias(const std::string& name, const TensorParallel& parallel,
                              std::int64_t vocabulary, std::int64_t multiple = kVocabularyMultiple);

// Projects x (outside rows, C) to the vocabulary, adds `bias` unless it is null, and adds the cross
// entropy, summed over the batch's targets, to batch.loss_sum. It works through slices of rows
// (loss_slice_rows), so the logits of all rows need not exist at once. On a recording tape the
// forward keeps x alone. The backward then makes the logits, once, and from each slice the loss and
// the gradients of x and of the table: loss_sum is complete after the backward, and the gradients
// of table and bias are never deferred. `logits` is the wanted type (type_of_logits); a gradient of
// the same type takes their place.
void vocabulary_loss(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                     const Value& x, Parameter& table, Parameter* bias = nullptr,
                     const ops::LogitBend& bend = {}, DType logits = DType::kF32);

// Returns the logits (rows, vocabulary), fp32, of x (rows, C), which is the same on all tensor
// ranks, on every one of them. `bias` may be null.
Tensor vocabulary_logits(ops::Context& ctx, const TensorParallel& parallel, const Tensor& x,
                         const Parameter& table, const Parameter* bias,
                         const ops::LogitBend& bend = {});

// Returns the logits (batch, vocabulary), fp32, of the last position of each sample, on every
// tensor rank.
Tensor last_logits(Tape& tape, const TensorParallel& parallel, const MicroBatch& batch,
                   const Value& x, const Parameter& table, const ops::LogitBend& bend = {});

}  // namespace trireme::nn

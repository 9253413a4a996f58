// The inner loops of the CPU operations: serial, on fp32, over contiguous ranges. The files in
// isa/ are compiled once per instruction set, each into a namespace of that name (TRIREME_ISA).
//
// These files must not define a symbol that the linker could merge with one of another file (an
// inline function, a template of the standard library). Otherwise instructions that the processor
// may lack could get into code that runs everywhere. So isa/ includes only headers without code,
// and everything there is in the namespace of the instruction set.
#pragma once

#include <cstdint>

namespace trireme::ops::cpu {

// The place of a dropout's row in the data, and its rate; see DropoutPlace.
struct DropoutRow {
  std::uint64_t key;
  std::uint32_t position;
  std::uint32_t sample;
  std::uint32_t layer;
  float rate;
};

// y may be any of the inputs, unless said otherwise.
struct ElementwiseKernels {
  void (*from_bf16)(const std::uint16_t* x, float* y, std::int64_t n);  // these four: no overlap
  void (*to_bf16)(const float* x, std::uint16_t* y, std::int64_t n);
  void (*from_fp16)(const std::uint16_t* x, float* y, std::int64_t n);
  void (*to_fp16)(const float* x, std::uint16_t* y, std::int64_t n);
  // The halves of SplitFloats. No overlap either.
  void (*split)(const float* x, std::uint16_t* high, std::uint16_t* low, std::int64_t n);
  void (*join)(const std::uint16_t* high, const std::uint16_t* low, float* y, std::int64_t n);
  void (*add)(const float* a, const float* b, float* y, std::int64_t n);
  void (*scale)(float* x, float factor, std::int64_t n);
  // x = cap * tanh(scale * x / cap).
  void (*bend)(float* x, std::int64_t n, float scale, float cap);
  void (*gelu)(const float* x, float* y, std::int64_t n);
  void (*gelu_backward)(const float* x, const float* dy, float* dx, std::int64_t n);
  void (*gelu_erf)(const float* x, float* y, std::int64_t n);
  void (*gelu_erf_backward)(const float* x, const float* dy, float* dx, std::int64_t n);
  void (*clamp)(const float* x, float low, float high, float* y, std::int64_t n);
  void (*clamp_backward)(const float* y, const float* dy, float low, float high, float* dx,
                         std::int64_t n);
  void (*swiglu)(const float* gate, const float* up, float* y, std::int64_t n);
  void (*swiglu_backward)(const float* gate, const float* up, const float* dy, float* dgate,
                          float* dup, std::int64_t n);
  void (*geglu)(const float* gate, const float* up, float* y, std::int64_t n);
  void (*geglu_backward)(const float* gate, const float* up, const float* dy, float* dgate,
                         float* dup, std::int64_t n);
  void (*dropout)(const DropoutRow& row, const float* x, float* y, std::int64_t n);
  void (*rotate)(float* low, float* high, const float* cosine, const float* sine, std::int64_t n);
  // The same for pairs (x[2 i], x[2 i + 1]).
  void (*rotate_adjacent)(float* x, const float* cosine, const float* sine, std::int64_t n);
};

// Each computes one row. bias and residual may be null; dx may be residual.
struct NormKernels {
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float epsilon,
                     float* y, float* mean, float* rstd, std::int64_t n);
  void (*layer_norm_backward_input)(const float* dy, const float* x, const float* weight,
                                    float mean, float rstd, const float* residual, float* dx,
                                    std::int64_t n);
  void (*layer_norm_backward_weight)(const float* dy, const float* x, float mean, float rstd,
                                     float* dweight, float* dbias, std::int64_t n);
  void (*rms_norm)(const float* x, const float* weight, float epsilon, float* y, float* rstd,
                   std::int64_t n);
  void (*rms_norm_backward_input)(const float* dy, const float* x, const float* weight, float rstd,
                                  const float* residual, float* dx, std::int64_t n);
  void (*rms_norm_backward_weight)(const float* dy, const float* x, float rstd, float* dweight,
                                   std::int64_t n);
  // y = x * rstd * weight.
  void (*scale_by)(const float* x, const float* weight, float rstd, float* y, std::int64_t n);
  // The sum of a * b * c.
  float (*sum_of_products)(const float* a, const float* b, const float* c, std::int64_t n);
  // dx = rstd * (dy * weight) - x * pull; dx may be dy.
  void (*rms_gradient)(const float* dy, const float* weight, const float* x, float rstd, float pull,
                       float* dx, std::int64_t n);
};

// A batch norm by columns: normed = (x - mean) * scale + bias, where scale = weight * rstd.
struct BatchNormColumns {
  const float* mean;
  const float* rstd;
  const float* scale;
  const float* bias;
  float low, high;  // the clamp
};

// A block of neighbouring rows each. y of the backward may be null: it is made again from x.
struct BatchNormKernels {
  // The mean of each column, and the sum of the squares of what it differs by.
  void (*moments)(const float* x, std::int64_t rows, std::int64_t columns, float* mean,
                  float* squares);
  // Makes the moments of `count` rows those of `count` + `more_count` rows (Chan et al. 1979).
  void (*merge_moments)(float* mean, float* squares, float count, const float* more_mean,
                        const float* more_squares, float more_count, std::int64_t columns);
  // y = clamp(normed + residual); residual may be null. y may be x or residual.
  void (*normalize)(const BatchNormColumns& norm, const float* x, const float* residual, float* y,
                    std::int64_t rows, std::int64_t columns);
  // sums (columns) += g, and sums_h (columns) += g (x - mean) rstd.
  void (*backward_sums)(const BatchNormColumns& norm, const float* dy, const float* x,
                        const float* y, float* sums, float* sums_h, std::int64_t rows,
                        std::int64_t columns);
  // dx = scale * (g - mean_g - (x - mean) slope). dresidual = g; it may be null or dy. dx may be
  // dy.
  void (*backward)(const BatchNormColumns& norm, const float* dy, const float* x, const float* y,
                   const float* mean_g, const float* slope, float* dresidual, float* dx,
                   std::int64_t rows, std::int64_t columns);
};

// Column `at` of the other row, and the number of the tap in the kernel's row.
struct ColumnTap {
  std::int32_t at, tap;
};

// A row of pixels, from some rows of other pixels: pixel j of y (pixels, channels) is the sum over
// the rows r and the taps t from first[j] to first[j + 1] of
// row[r][column[t].at] * weight[r][column[t].tap].
struct DepthwiseRow {
  const float* const* row;     // each (.., channels)
  const float* const* weight;  // for each row (kernel_width, channels)
  std::int64_t rows;
  const std::int32_t* first;  // (pixels + 1)
  const ColumnTap* column;
  std::int64_t pixels, channels;
};

struct PictureKernels {
  void (*depthwise)(const DepthwiseRow& from, float* y);
  // sums (channels) += a[i * a_step] * b[i * b_step] for i below `pixels`.
  void (*add_products)(const float* a, std::int64_t a_step, const float* b, std::int64_t b_step,
                       std::int64_t pixels, std::int64_t channels, float* sums);
  // Where x is larger than best, or the first NaN: best = x, which = tap.
  void (*take_larger)(const float* x, std::int32_t tap, float* best, std::int32_t* which,
                      std::int64_t n);
  // sum += x where which = tap.
  void (*add_where)(const float* x, const std::int32_t* which, std::int32_t tap, float* sum,
                    std::int64_t n);
};

struct SoftmaxKernels {
  // Computes the row's maximum and the sum of exp(x - maximum).
  void (*statistics)(const float* x, std::int64_t n, float* maximum, float* sum);
  // y = exp(x - maximum) / sum. No x exceeds maximum.
  void (*normalize)(const float* x, float maximum, float sum, float* y, std::int64_t n);
  // dx *= scale * (1 - (x / cap)^2), the derivative of ElementwiseKernels::bend, whose result x is.
  // cap 0: dx *= scale.
  void (*unbend)(const float* x, float scale, float cap, float* dx, std::int64_t n);
};

struct AdamWFactors {
  float beta1, beta2, epsilon;
  float gradient_factor;     // gradient_scale / loss_scale * clip_factor
  float step_size;           // learning_rate / (1 - beta1^t)
  float inverse_root_bias2;  // 1 / sqrt(1 - beta2^t)
  float keep;                // 1 - learning_rate * weight_decay
  float l2_penalty;
};
struct SgdFactors {
  float momentum, gradient_factor, learning_rate, weight_decay, l2_penalty;
  float length;  // multiplies the gradient
  bool nesterov;
};

struct LionFactors {
  float beta1, beta2, gradient_factor, learning_rate, weight_decay;
};

struct MomentumFactors {
  float momentum, gradient_factor;
  bool nesterov;
};

struct ScheduleFreeStep {
  float beta2, epsilon, weight_decay;
  float gradient_factor, inverse_root_bias2, learning_rate, part, share;  // ops/step_length.h
};

struct LineFactors {
  float gradient_factor;
  float row;    // what the columns' averages are multiplied by
  float least;  // of the products
};

struct AverageFactors {
  float gradient_factor, share, least;  // share: of the new square
};

struct UpdateKernels {
  void (*adamw)(const AdamWFactors& f, float* master, const float* gradient, float* exp_avg,
                float* exp_avg_sq, std::int64_t n);
  void (*sgd)(const SgdFactors& f, float* master, const float* gradient, float* velocity,
              std::int64_t n);  // velocity may be null
  void (*lion)(const LionFactors& f, float* master, const float* gradient, float* exp_avg,
               std::int64_t n);
  // y receives the new weights.
  void (*schedule_free)(const ScheduleFreeStep& f, float* master, const float* gradient, float* gap,
                        float* exp_avg_sq, float* y, std::int64_t n);
  // y = master + part * gap.
  void (*schedule_free_weights)(float part, const float* master, const float* gap, float* y,
                                std::int64_t n);
  // direction may be gradient, here and below. step_size is 1 / (1 - beta1^t); keep is not read.
  void (*adamw_direction)(const AdamWFactors& f, float weight_decay, const float* master,
                          const float* gradient, float* exp_avg, float* exp_avg_sq,
                          float* direction, std::int64_t n);
  void (*average)(const MomentumFactors& f, const float* gradient, float* average, float* direction,
                  std::int64_t n);
  // master = keep * master - step * direction.
  void (*step_along)(float keep, float step, float* master, const float* direction, std::int64_t n);
  // average = (1 - share) * average + share * value.
  void (*average_weights)(float share, const float* value, float* average, std::int64_t n);
  double (*sum_of_squares)(const float* x, std::int64_t n);
  // See SquareParts (ops/step_length.h): high and low are its members. Adds to sums[0] and sums[1],
  // and to the elements of highs and lows.
  void (*add_squares_of_row)(double high, double low, const float* x, std::int64_t n, double* sums);
  void (*add_squares_to_columns)(double high, double low, const float* x, std::int64_t n,
                                 double* highs, double* lows);
  void (*divide_by_columns)(const LineFactors& f, const float* columns, const float* gradient,
                            float* direction, std::int64_t n);
  void (*divide_by_average)(const AverageFactors& f, const float* gradient, float* average,
                            float* direction, std::int64_t n);
};

// Attention works on tiles (keys, queries), and on kLane queries at a time.
inline constexpr std::int64_t kLane = 16;

// c (m, n) = a (m, k) * b (k, n), or c += a * b with `accumulate`. Element (i, p) of a is
// a[i * a_row + p * a_column]. Rows of b and c are contiguous. n is a multiple of kLane.
struct TileProduct {
  std::int64_t m, n, k;
  const float* a;
  std::int64_t a_row, a_column;
  const float* b;
  std::int64_t b_row;
  float* c;
  std::int64_t c_row;
  bool accumulate;
};

// The keys that the queries of a tile may see: query j sees key i of the tile, which has number
// first + i, if from[j] <= first + i <= to[j].
struct TileMask {
  std::int64_t first;
  const std::int32_t* from;
  const std::int32_t* to;
};

struct AttentionKernels {
  void (*product)(const TileProduct& p);
  // y (columns, rows_padded) = factor * transpose of x (rows, columns), zero beyond rows.
  void (*transpose)(const float* x, std::int64_t x_row, std::int64_t rows, std::int64_t columns,
                    float factor, float* y, std::int64_t rows_padded);
  // Sets scores (keys, queries) that the mask hides to minus infinity.
  void (*mask)(const TileMask& mask, float* scores, std::int64_t keys, std::int64_t queries);
  // Online softmax: updates the maximum and sum of each query and replaces scores by
  // exp(score - maximum). rescale receives the factor for what was summed before.
  void (*softmax)(float* scores, std::int64_t keys, std::int64_t queries, float* maximum,
                  float* sum, float* rescale);
  // Replaces scores by weights = exp(score - log_sum), and dweights by
  // weights * (dweights - delta) * factor.
  void (*softmax_backward)(float* scores, float* dweights, std::int64_t keys, std::int64_t queries,
                           const float* log_sum, const float* delta, float factor);
  // The same for scores that are cap * tanh(s / cap): the gradient of s times factor.
  void (*softmax_backward_capped)(float* scores, float* dweights, std::int64_t keys,
                                  std::int64_t queries, const float* log_sum, const float* delta,
                                  float factor, float cap);
  // Multiplies row r of x (rows, columns) by factors[r].
  void (*scale_rows)(float* x, std::int64_t rows, std::int64_t columns, const float* factors);
  float (*dot)(const float* a, const float* b, std::int64_t n);
};

// Products of matrices are made of tiles, whose sums over the terms stay in registers. A panel
// holds an operand's lines (rows of a, columns of b) of one tile: element (p, i) is term p of line
// i.
struct PanelSource {
  const float* x;
  std::int64_t stride;
  bool across;  // term p of line i: x[p * stride + i], otherwise x[i * stride + p]
  std::int64_t lines, terms;
};
struct ProductTile {
  float* c;
  std::int64_t stride, rows, columns;
  bool accumulate;  // onto what c holds
};

struct ProductKernels {
  std::int64_t rows, columns;  // of a tile, and so the lines of a panel of a and of b
  // Packs all lines into panels, one after the other. The last is filled up with zeros.
  void (*pack_a)(const PanelSource& from, float* panels);
  void (*pack_b)(const PanelSource& from, float* panels);
  void (*multiply)(const float* a, const float* b, std::int64_t terms, const ProductTile& tile);
  // y[i] = x times line i of w, which begins at w + i * stride.
  void (*dots)(const float* x, const float* w, std::int64_t stride, std::int64_t lines,
               std::int64_t terms, float* y);
};

// Blocks of 256 elements (trireme/ops/quantize.h). The results have the same bits on every
// instruction set.
struct QuantizeKernels {
  // v (256) = x (n) + error (n), then zeros. Returns the largest key (ops/quantized.h).
  std::uint32_t (*join)(const float* x, const float* error, std::int64_t n, float* v);
  // Writes the codes of v (256), and leaves there what they lose. bits: 8, 4 or 2.
  void (*encode)(int bits, float scale, float inverse, float* v, std::uint8_t* codes);
  void (*decode)(int bits, float scale, const std::uint8_t* codes, float* y);
  // codes (n) = x + error as bf16; error = what that loses, as before where a code is not finite.
  void (*round_to_bf16)(const float* x, float* error, std::uint16_t* codes, std::int64_t n);
};

struct Kernels {
  const char* name;  // "AVX-512"
  const ElementwiseKernels& elementwise;
  const NormKernels& norm;
  const SoftmaxKernels& softmax;
  const UpdateKernels& update;
  const AttentionKernels& attention;
  const BatchNormKernels& batch_norm;
  const PictureKernels& pictures;
  const ProductKernels& product;
  const QuantizeKernels& quantize;
};

// The kernels of the best instruction set that this processor has. TRIREME_ISA=baseline|avx2|avx512
// in the environment asks for a lesser one; throws ConfigError for any other value. The choice is
// made once per process.
const Kernels& kernels();

}  // namespace trireme::ops::cpu

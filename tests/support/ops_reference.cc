#include "support/ops_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace trireme::testing::reference {
namespace {

std::size_t at(std::int64_t row, std::int64_t columns, std::int64_t column) {
  return static_cast<std::size_t>(row * columns + column);
}

}  // namespace

Values matmul(const Values& a, bool transpose_a, const Values& b, bool transpose_b, std::int64_t m,
              std::int64_t n, std::int64_t k) {
  Values c(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = 0.0;
      for (std::int64_t p = 0; p < k; ++p) {
        sum +=
            a[transpose_a ? at(p, m, i) : at(i, k, p)] * b[transpose_b ? at(j, k, p) : at(p, n, j)];
      }
      c[at(i, n, j)] = sum;
    }
  }
  return c;
}

double gelu(double x) {
  return x / 2.0 * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

double gelu_erf(double x) {
  return x / 2.0 * (1.0 + std::erf(x / std::sqrt(2.0)));
}

double sigmoid(double x) {
  return 1.0 / (1.0 + std::exp(-x));
}

namespace {

// The activation of each gate, times its up.
template <class Activation>
Values gated(const Values& gate_up, std::int64_t width, const Activation& activation) {
  const auto rows = static_cast<std::int64_t>(gate_up.size()) / (2 * width);
  Values y;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < width; ++c) {
      y.push_back(activation(gate_up[at(r, 2 * width, c)]) * gate_up[at(r, 2 * width, width + c)]);
    }
  }
  return y;
}

}  // namespace

Values swiglu(const Values& gate_up, std::int64_t width) {
  return gated(gate_up, width, [](double gate) { return gate * sigmoid(gate); });
}

Values geglu(const Values& gate_up, std::int64_t width) {
  return gated(gate_up, width, gelu);
}

Values layer_norm(const Values& x, const Values& weight, const Values& bias, double epsilon) {
  const auto n = static_cast<std::int64_t>(weight.size());
  Values y(x.size());
  for (std::int64_t r = 0; r < static_cast<std::int64_t>(x.size()) / n; ++r) {
    double mean = 0.0;
    double variance = 0.0;
    for (std::int64_t c = 0; c < n; ++c) mean += x[at(r, n, c)] / static_cast<double>(n);
    for (std::int64_t c = 0; c < n; ++c) {
      variance += (x[at(r, n, c)] - mean) * (x[at(r, n, c)] - mean) / static_cast<double>(n);
    }
    for (std::int64_t c = 0; c < n; ++c) {
      const auto i = static_cast<std::size_t>(c);
      y[at(r, n, c)] = (x[at(r, n, c)] - mean) / std::sqrt(variance + epsilon) * weight[i] +
                       (bias.empty() ? 0.0 : bias[i]);
    }
  }
  return y;
}

Values rms_norm(const Values& x, const Values& weight, double epsilon) {
  const auto n = static_cast<std::int64_t>(weight.size());
  Values y(x.size());
  for (std::int64_t r = 0; r < static_cast<std::int64_t>(x.size()) / n; ++r) {
    double squares = 0.0;
    for (std::int64_t c = 0; c < n; ++c) squares += x[at(r, n, c)] * x[at(r, n, c)];
    for (std::int64_t c = 0; c < n; ++c) {
      y[at(r, n, c)] = x[at(r, n, c)] / std::sqrt(squares / static_cast<double>(n) + epsilon) *
                       weight[static_cast<std::size_t>(c)];
    }
  }
  return y;
}

double cross_entropy(const Values& logits, const std::vector<std::int32_t>& targets,
                     std::int64_t classes, std::int64_t valid) {
  double loss = 0.0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    if (targets[r] < 0) continue;
    const auto row = static_cast<std::int64_t>(r);
    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t c = 0; c < valid; ++c)
      largest = std::max(largest, logits[at(row, classes, c)]);
    double sum = 0.0;
    for (std::int64_t c = 0; c < valid; ++c) sum += std::exp(logits[at(row, classes, c)] - largest);
    loss += std::log(sum) + largest - logits[at(row, classes, targets[r])];
  }
  return loss;
}

Values attention(const ops::AttentionShape& s, const Values& qkv,
                 const std::vector<std::int32_t>& first_key,
                 const std::vector<std::int32_t>& key_end) {
  const std::int64_t D = s.head_size;
  Values out(static_cast<std::size_t>(s.batch * s.length * s.heads * D), 0.0);
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t key_head = s.heads + h / (s.heads / s.kv_heads);
      const std::int64_t value_head = key_head + s.kv_heads;
      for (std::int64_t t = 0; t < s.length; ++t) {
        const std::int64_t row = b * s.length + t;
        std::int64_t first = first_key.empty() ? 0 : first_key[static_cast<std::size_t>(row)];
        if (s.window > 0) first = std::max(first, t + 1 - s.window);
        std::int64_t end = s.causal ? t + 1 : s.length;
        if (!key_end.empty()) {
          end = std::min<std::int64_t>(end, key_end[static_cast<std::size_t>(row)]);
        }
        Values weights;
        double sum = 0.0;
        for (std::int64_t u = first; u < end; ++u) {
          double score = 0.0;
          for (std::int64_t d = 0; d < D; ++d) {
            score += qkv[at(row, s.row(), h * D + d)] *
                     qkv[at(b * s.length + u, s.row(), key_head * D + d)];
          }
          score *= s.scale != 0.0f ? static_cast<double>(s.scale)
                                   : 1.0 / std::sqrt(static_cast<double>(D));
          if (s.cap > 0.0f) score = static_cast<double>(s.cap) * std::tanh(score / s.cap);
          weights.push_back(std::exp(score));
          sum += weights.back();
        }
        for (std::int64_t u = first; u < end; ++u) {
          for (std::int64_t d = 0; d < D; ++d) {
            out[at(row, s.heads * D, h * D + d)] +=
                weights[static_cast<std::size_t>(u - first)] / sum *
                qkv[at(b * s.length + u, s.row(), value_head * D + d)];
          }
        }
      }
    }
  }
  return out;
}

Values rotary(const ops::AttentionShape& s, const Values& qkv, std::int64_t first_position,
              const ops::Rotation& rotation) {
  Values y = qkv;
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  for (std::int64_t row = 0; row < s.batch * s.length; ++row) {
    const std::int64_t position = first_position + row % s.length;
    for (std::int64_t h = 0; h < s.heads + s.kv_heads; ++h) {
      for (std::int64_t i = 0; i < pairs; ++i) {
        const double angle =
            static_cast<double>(position) * rotation.frequencies[static_cast<std::size_t>(i)];
        const std::int64_t head = h * s.head_size;
        const std::size_t low = at(row, s.row(), head + (rotation.adjacent ? 2 * i : i));
        const std::size_t high =
            at(row, s.row(), head + (rotation.adjacent ? 2 * i + 1 : i + pairs));
        const double cosine = rotation.amplitude * std::cos(angle);
        const double sine = rotation.amplitude * std::sin(angle);
        y[low] = qkv[low] * cosine - qkv[high] * sine;
        y[high] = qkv[high] * cosine + qkv[low] * sine;
      }
      if (h >= s.heads) continue;
      const double growth =
          1.0 + static_cast<double>(rotation.query_growth) *
                    std::log(1.0 + static_cast<double>(position / rotation.query_period));
      for (std::int64_t d = 0; d < s.head_size; ++d)
        y[at(row, s.row(), h * s.head_size + d)] *= growth;
    }
  }
  return y;
}

Values head_norm(const ops::HeadNorm& n, const Values& qkv, const Values& query,
                 const Values& key) {
  const ops::AttentionShape& s = n.shape;
  Values y = qkv;
  const auto normalize = [&](std::int64_t row, std::int64_t begin, const Values& factor) {
    const auto width = static_cast<std::int64_t>(factor.size());
    double squares = 0.0;
    for (std::int64_t i = 0; i < width; ++i)
      squares += std::pow(qkv[at(row, s.row(), begin + i)], 2);
    const double rstd = 1.0 / std::sqrt(squares / static_cast<double>(width) + n.epsilon);
    for (std::int64_t i = 0; i < width; ++i) {
      y[at(row, s.row(), begin + i)] *= rstd * factor[static_cast<std::size_t>(i)];
    }
  };
  for (std::int64_t row = 0; row < n.rows(); ++row) {
    if (n.whole) {
      normalize(row, 0, query);
      normalize(row, s.heads * s.head_size, key);
      continue;
    }
    for (std::int64_t h = 0; h < s.heads + s.kv_heads; ++h) {
      normalize(row, h * s.head_size, h < s.heads ? query : key);
    }
  }
  return y;
}

double classification_loss(const Values& logits, const std::vector<std::int32_t>& targets,
                           std::int64_t classes, double smoothing) {
  double loss = 0.0;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const auto r = static_cast<std::int64_t>(row);
    double sum = 0.0;
    for (std::int64_t c = 0; c < classes; ++c) sum += std::exp(logits[at(r, classes, c)]);
    for (std::int64_t c = 0; c < classes; ++c) {
      const double wanted =
          (c == targets[row] ? 1.0 - smoothing : 0.0) + smoothing / static_cast<double>(classes);
      loss -= wanted * (logits[at(r, classes, c)] - std::log(sum));
    }
  }
  return loss;
}

namespace {

// Calls body(index in y, index in x, index in the weights) for each product of a convolution.
template <class Body>
void for_products(const ops::ConvolutionShape& s, const Body& body) {
  const std::int64_t out_of_group = s.out_channels / s.groups;
  for (std::int64_t pixel = 0; pixel < s.out_pixels(); ++pixel) {
    const std::int64_t j = pixel % s.out_width(), i = pixel / s.out_width() % s.out_height();
    const std::int64_t sample = pixel / (s.out_width() * s.out_height());
    for (std::int64_t tap = 0; tap < s.taps(); ++tap) {
      const std::int64_t h = i * s.stride - s.padding + tap / s.kernel_width;
      const std::int64_t w = j * s.stride - s.padding + tap % s.kernel_width;
      if (h < 0 || h >= s.height || w < 0 || w >= s.width) continue;
      const std::int64_t seen = (sample * s.height + h) * s.width + w;
      for (std::int64_t out = 0; out < s.out_channels; ++out) {
        const std::int64_t first = out / out_of_group * s.group_channels();
        for (std::int64_t c = 0; c < s.group_channels(); ++c) {
          body(at(pixel, s.out_channels, out), at(seen, s.in_channels, first + c),
               at(out * s.taps() + tap, s.group_channels(), c));
        }
      }
    }
  }
}

}  // namespace

Values convolution(const ops::ConvolutionShape& s, const Values& x, const Values& weight) {
  Values y(static_cast<std::size_t>(s.output().elements()), 0.0);
  for_products(
      s, [&](std::size_t out, std::size_t in, std::size_t w) { y[out] += x[in] * weight[w]; });
  return y;
}

ConvolutionGradients convolution_backward(const ops::ConvolutionShape& s, const Values& x,
                                          const Values& weight, const Values& dy) {
  ConvolutionGradients gradients{Values(x.size(), 0.0), Values(weight.size(), 0.0)};
  for_products(s, [&](std::size_t out, std::size_t in, std::size_t w) {
    gradients.x[in] += dy[out] * weight[w];
    gradients.weight[w] += dy[out] * x[in];
  });
  return gradients;
}

Values batch_moments(const Values& x, std::int64_t n) {
  const auto rows = static_cast<std::int64_t>(x.size()) / n;
  Values moments(static_cast<std::size_t>(2 * n), 0.0);
  for (const bool variance : {false, true}) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t c = 0; c < n; ++c) {
        const double value = x[at(r, n, c)], mean = moments[at(0, n, c)];
        moments[at(variance, n, c)] +=
            (variance ? (value - mean) * (value - mean) : value) / static_cast<double>(rows);
      }
    }
  }
  return moments;
}

Values batch_norm(const Values& x, const Values& moments, const Values& weight, const Values& bias,
                  double epsilon, const Values& residual, const ops::Clamp& clamp) {
  const std::size_t n = weight.size();
  Values y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % n;
    const double normed =
        (x[i] - moments[c]) / std::sqrt(moments[n + c] + epsilon) * weight[c] + bias[c];
    y[i] = std::clamp(normed + (residual.empty() ? 0.0 : residual[i]),
                      static_cast<double>(clamp.low), static_cast<double>(clamp.high));
  }
  return y;
}

void for_windows(const ops::PoolingShape& s, const Values& x,
                 const std::function<void(std::size_t, const Values&)>& body) {
  std::size_t index = 0;
  for (std::int64_t pixel = 0; pixel < s.batch * s.out_height() * s.out_width(); ++pixel) {
    const std::int64_t j = pixel % s.out_width(), i = pixel / s.out_width() % s.out_height();
    const std::int64_t sample = pixel / (s.out_width() * s.out_height());
    for (std::int64_t c = 0; c < s.channels; ++c) {
      Values seen;
      for (std::int64_t tap = 0; tap < s.kernel_height * s.kernel_width; ++tap) {
        const std::int64_t h = i * s.stride - s.padding + tap / s.kernel_width;
        const std::int64_t w = j * s.stride - s.padding + tap % s.kernel_width;
        const bool inside = 0 <= h && h < s.height && 0 <= w && w < s.width;
        seen.push_back(inside ? x[at((sample * s.height + h) * s.width + w, s.channels, c)]
                              : std::numeric_limits<double>::quiet_NaN());
      }
      body(index++, seen);
    }
  }
}

}  // namespace trireme::testing::reference

#include "support/small_bert.h"

#include "trireme/base/philox.h"
#include "trireme/ops/softmax_loss.h"

namespace trireme::testing {

models::BertConfig small_bert() {
  return {.layers = 3,
          .width = 32,
          .heads = 4,
          .hidden = 48,
          .vocabulary = 67,
          .context = 12,
          .norm_epsilon = 1e-5};
}

nn::HostMicroBatch undefined_masked_texts(ops::Context& ctx, std::int64_t samples,
                                          std::int64_t length) {
  nn::HostMicroBatch host(ctx, samples, length);
  host.add(ctx, nn::kTokens, {samples * length}, DType::kI32);
  host.add(ctx, nn::kKeyEnd, {samples * length}, DType::kI32);
  host.add(ctx, nn::kTargetRows, {samples * kMostMasked}, DType::kI32);
  host.add(ctx, nn::kTargets, {samples * kMostMasked}, DType::kI32);
  return host;
}

nn::MicroBatch make_masked_texts(ops::Context& ctx, const models::BertConfig& model, int number,
                                 std::int64_t samples, bool training) {
  const std::int64_t length = model.context;
  const nn::HostMicroBatch host = undefined_masked_texts(ctx, samples, length);
  const auto field = [&](std::string_view name) {
    return host.fields.find(name).data<std::int32_t>();
  };
  const std::uint64_t key = philox_key(7, "masked texts of tests");
  const auto token = [&](std::int64_t at) {
    const float drawn = philox_uniform_at(key, static_cast<std::uint64_t>(at));
    return static_cast<std::int32_t>(drawn * 0.999f * static_cast<float>(model.vocabulary));
  };
  std::int64_t count = 0;
  for (std::int64_t b = 0; b < samples; ++b) {
    const std::int64_t sample = number * samples + b;
    host.samples.data<std::int64_t>()[b] = sample;
    const std::int64_t tokens = length - sample % 3 * (length / 3);
    for (std::int64_t t = 0; t < length; ++t) {
      field(nn::kTokens)[b * length + t] = t < tokens ? token(sample * length + t) : 0;
      field(nn::kKeyEnd)[b * length + t] = static_cast<std::int32_t>(tokens);
    }
    const std::int64_t masked = 1 + sample % kMostMasked;
    count += masked;
    for (std::int64_t i = 0; i < kMostMasked; ++i) {
      const std::int64_t at = b * kMostMasked + i, position = (sample + i) % tokens;
      const bool real = i < masked;
      field(nn::kTargetRows)[at] = static_cast<std::int32_t>(b * length + (real ? position : 0));
      field(nn::kTargets)[at] = real ? token(-1 - sample * kMostMasked - i) : ops::kMaskedTarget;
    }
  }
  return host.to_device(ctx, count, training);
}

}  // namespace trireme::testing

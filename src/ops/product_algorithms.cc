#include "trireme/ops/product_algorithms.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"
#include "trireme/tensor/copy.h"

#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

constexpr int kFormat = 1;
constexpr std::string_view kFormatName = "trireme_products";
constexpr std::int64_t kMostExtent = std::int64_t{1} << 40;
constexpr std::array kTypes = {DType::kF32, DType::kBF16, DType::kF16};
constexpr std::array<std::pair<Epilogue, std::string_view>, 3> kEpilogues = {
    {{Epilogue::kNone, "none"},
     {Epilogue::kGelu, "gelu"},
     {Epilogue::kGeluBackward, "gelu_backward"}}};

std::string_view name_of(Epilogue epilogue) {
  return std::ranges::find(kEpilogues, epilogue, [](const auto& one) { return one.first; })->second;
}

Json json_of(const ProductChoice& choice) {
  const Product& p = choice.product;
  Json alignment = Json::array(), algorithm = Json::object();
  for (const std::uint32_t one : p.alignment) alignment.push_back(std::int64_t{one});
  for (std::size_t i = 0; i < kAlgorithmAttributes.size(); ++i) {
    algorithm[kAlgorithmAttributes[i]] = std::int64_t{choice.algorithm.attributes[i]};
  }
  return Json::object({{"m", p.m},
                       {"n", p.n},
                       {"k", p.k},
                       {"transpose_a", p.transpose_a},
                       {"transpose_b", p.transpose_b},
                       {"type", trireme::name_of(p.dtype)},
                       {"result", trireme::name_of(p.result)},
                       {"accumulates", p.accumulates},
                       {"adds", p.adds},
                       {"has_bias", p.has_bias},
                       {"sums_bias", p.sums_bias},
                       {"epilogue", name_of(p.epilogue)},
                       {"alignment", std::move(alignment)},
                       {"algorithm", std::move(algorithm)},
                       {"seconds", choice.seconds},
                       {"first_seconds", choice.first}});
}

// What JsonError says is told with the place in the file.
[[noreturn]] void refuse(const std::string& why) {
  throw JsonError(why);
}

std::int64_t integer_between(const Json& json, std::string_view key, std::int64_t least,
                             std::int64_t most) {
  const std::int64_t value = json.at(key).integer();
  if (value < least || value > most) {
    refuse(fmt::format("{} is {}, not from {} to {}", key, value, least, most));
  }
  return value;
}

DType type_in(const Json& json, std::string_view key) {
  const std::string& name = json.at(key).text();
  for (const DType type : kTypes) {
    if (trireme::name_of(type) == name) return type;
  }
  refuse(fmt::format("{} is {}, not fp32, bf16 or fp16", key, shown(name)));
}

Product product_in(const Json& json) {
  Product p;
  p.m = integer_between(json, "m", 1, kMostExtent);
  p.n = integer_between(json, "n", 1, kMostExtent);
  p.k = integer_between(json, "k", 1, kMostExtent);
  p.transpose_a = json.at("transpose_a").boolean();
  p.transpose_b = json.at("transpose_b").boolean();
  p.dtype = type_in(json, "type");
  p.result = type_in(json, "result");
  if (p.result != p.dtype && p.result != DType::kF32) {
    refuse("result is neither fp32 nor of type");
  }
  p.accumulates = json.at("accumulates").boolean();
  p.adds = json.at("adds").boolean();
  p.has_bias = json.at("has_bias").boolean();
  p.sums_bias = json.at("sums_bias").boolean();
  const std::string& epilogue = json.at("epilogue").text();
  const auto* const known =
      std::ranges::find(kEpilogues, epilogue, [](const auto& one) { return one.second; });
  if (known == kEpilogues.end()) {
    refuse(fmt::format("epilogue is {}, not none, gelu or gelu_backward", shown(epilogue)));
  }
  p.epilogue = known->first;
  const Json::Array& alignment = json.at("alignment").items();
  if (alignment.size() != p.alignment.size()) {
    refuse(fmt::format("alignment has {} numbers, not {}", alignment.size(), p.alignment.size()));
  }
  for (std::size_t i = 0; i < alignment.size(); ++i) {
    const std::int64_t bytes = alignment[i].integer();
    if (bytes < 1 || bytes > 16 || !std::has_single_bit(static_cast<std::uint64_t>(bytes))) {
      refuse(fmt::format("alignment is {}, not 1, 2, 4, 8 or 16", bytes));
    }
    p.alignment[i] = static_cast<std::uint32_t>(bytes);
  }
  return p;
}

ProductChoice choice_in(const Json& json) {
  ProductChoice choice{.product = product_in(json), .algorithm = {}};
  const Json& algorithm = json.at("algorithm");
  for (std::size_t i = 0; i < kAlgorithmAttributes.size(); ++i) {
    choice.algorithm.attributes[i] = static_cast<std::uint32_t>(
        integer_between(algorithm, kAlgorithmAttributes[i], 0, INT32_MAX));
  }
  choice.seconds = json.at("seconds").number();
  choice.first = json.at("first_seconds").number();
  return choice;
}

ProductFile file_in(const Json& json) {
  if (json.find(kFormatName) == nullptr) {
    refuse(fmt::format("has no {}: it is no file of trireme bench products", kFormatName));
  }
  if (const std::int64_t format = json.at(kFormatName).integer(); format != kFormat) {
    refuse(fmt::format("is of format {}, and this version reads {}", format, kFormat));
  }
  const std::int64_t workspace = integer_between(json, "workspace", 0, kMostExtent);
  ProductFile file{.machine = {.gpu = json.at("gpu").text(),
                               .library = json.at("library").text(),
                               .workspace = static_cast<std::size_t>(workspace),
                               .multiprocessors = static_cast<int>(
                                   integer_between(json, "multiprocessors", 0, 1 << 20))},
                   .choices = {}};
  std::set<Product> known;
  for (const Json& one : json.at("products").items()) {
    try {
      file.choices.push_back(choice_in(one));
    } catch (const JsonError& error) {
      refuse(fmt::format("product {}: {}", file.choices.size() + 1, error.what()));
    }
    if (!known.insert(file.choices.back().product).second) {
      refuse(fmt::format("product {} is there twice: {}", file.choices.size(),
                         text_of(file.choices.back().product)));
    }
  }
  return file;
}

// Queues values of magnitudes from 1/4 to 2 to all of `to`, whatever floating type it is read as:
// zeros would take less power, and with it less time, than a model's values.
void fill_with_values(Context& ctx, const Tensor& to) {
  constexpr std::int64_t kAtOnce = std::int64_t{1} << 22;
  const std::int64_t all = to.elements();
  const Tensor host = ctx.allocate_host({std::min(all, kAtOnce)}, DType::kU16);
  std::uint32_t draw = 1;
  for (std::int64_t i = 0; i < host.elements(); ++i) {
    draw = draw * 1664525u + 1013904223u;  // Numerical Recipes, section 7.1
    host.data<std::uint16_t>()[i] =
        static_cast<std::uint16_t>(0x3e80u | (draw >> 16 & 0x8000u) | (draw >> 24 & 0x7fu));
  }
  const Tensor values = to_device(ctx, host);
  for (std::int64_t at = 0; at < all; at += kAtOnce) {
    const std::int64_t end = std::min(at + kAtOnce, all);
    copy(values.rows(0, end - at), to.rows(at, end), ctx.stream);
  }
}

// Bytes of a matrix, or of a vector with one row.
std::int64_t bytes_of(std::int64_t rows, std::int64_t columns, DType dtype) {
  return rows * columns * static_cast<std::int64_t>(size_of(dtype));
}

}  // namespace

std::string text_of(const Product& product) {
  const auto operand = [](std::int64_t rows, std::int64_t columns, bool transposed) {
    return transposed ? fmt::format("({}, {})^T", columns, rows)
                      : fmt::format("({}, {})", rows, columns);
  };
  const char* then = product.epilogue == Epilogue::kGelu           ? ", then GELU"
                     : product.epilogue == Epilogue::kGeluBackward ? ", then GELU's gradient"
                                                                   : "";
  return fmt::format(
      "{} by {} in {} into {}{}{}{}", operand(product.m, product.k, product.transpose_a),
      operand(product.k, product.n, product.transpose_b), trireme::name_of(product.dtype),
      trireme::name_of(product.result), product.has_bias ? " with a bias" : "",
      product.adds          ? ", added to a matrix"
      : product.accumulates ? ", added up"
                            : "",
      then);
}

std::string write_products(const ProductFile& file) {
  const ProductMachine& machine = file.machine;
  std::string text = Json::object({{kFormatName.data(), kFormat},
                                   {"gpu", machine.gpu},
                                   {"library", machine.library},
                                   {"workspace", static_cast<std::uint64_t>(machine.workspace)},
                                   {"multiprocessors", machine.multiprocessors}})
                         .dump();
  text.back() = ',';
  text += " \"products\": [";
  const char* between = "\n";
  for (const ProductChoice& choice : file.choices) {
    text += between + json_of(choice).dump();
    between = ",\n";
  }
  return text + "\n]}\n";
}

ProductFile read_products(const std::string& text, const std::string& origin) {
  try {
    return file_in(Json::parse_unique(text));
  } catch (const JsonError& error) {
    throw ConfigError(fmt::format("{}: {}", origin, error.what()));
  }
}

ProductAlgorithms* product_algorithms(Context& ctx) {
  return ctx.cuda ? ctx.matmul->algorithms() : nullptr;
}

ProductMachine product_machine(Context& ctx) {
  ProductAlgorithms* const algorithms = product_algorithms(ctx);
  TRIREME_CHECK(algorithms != nullptr, "products have no algorithms here");
  ProductMachine machine = algorithms->machine();
  machine.gpu = ctx.cuda->properties(ctx.device.index).name;
  return machine;
}

MatmulCall call_of(const Product& product, const std::array<void*, 6>& operands) {
  const bool auxiliary = product.epilogue != Epilogue::kNone;
  return {.m = product.m,
          .n = product.n,
          .k = product.k,
          .transpose_a = product.transpose_a,
          .transpose_b = product.transpose_b,
          .a = operands[0],
          .b = operands[1],
          .c = operands[3],
          .dtype = product.dtype,
          .c_dtype = product.result,
          .accumulate = product.accumulates,
          .addend = product.adds ? operands[2] : nullptr,
          .bias = product.has_bias ? operands[4] : nullptr,
          .bias_dtype = product.result,
          .epilogue = product.epilogue,
          .auxiliary = auxiliary ? operands[5] : nullptr,
          .bias_gradient = product.sums_bias ? static_cast<float*>(operands[4]) : nullptr};
}

std::function<void()> made_up_product(Context& ctx, const Product& p) {
  const bool auxiliary = p.epilogue != Epilogue::kNone;
  const std::int64_t result = bytes_of(p.m, p.n, p.result);
  const std::array<std::int64_t, 6> bytes = {
      bytes_of(p.m, p.k, p.dtype), bytes_of(p.k, p.n, p.dtype), p.adds ? result : 0, result,
      bytes_of(1, p.n, p.result),  auxiliary ? result : 0};
  const auto held = std::make_shared<Tensors>();
  std::array<void*, 6> operands{};
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const std::int64_t skip = p.alignment[i] % 16;  // a block begins at a multiple of 16
    held->push_back(ctx.allocate({bytes[i] / 2 + 8}, DType::kU16));
    fill_with_values(ctx, held->back());
    operands[i] = static_cast<std::byte*>(held->back().raw()) + skip;
  }
  return [&ctx, held, call = call_of(p, operands)] { ctx.matmul->run(ctx, call); };
}

}  // namespace trireme::ops

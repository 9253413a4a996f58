// Matrix products by cuBLASLt, on a GPU and a library that are scripted. That the numbers are right
// for every transposition, type and shape is for ops_matmul_test.cc, which ops_emulated_test runs
// on the same scripted library; here is what numbers do not show.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "trireme/base/dynamic_library.h"
#include "trireme/ops/block_scaled.h"
#include "trireme/ops/product_algorithms.h"

#include "support/cublaslt_testing.h"

namespace trireme {
namespace {

using ops::Transpose;
using testing::CublasLt;
using testing::FakeCublasLt;
using testing::kMostWorkspace;
using testing::some_call;
using testing::with_bias;
using testing::with_gelu;

TEST_F(CublasLt, QueuesTheProductWithItsBiasOnTheContextsStream) {
  library_.workspace = 1000;
  {
    ops::Context ctx = context();
    const auto workspace = static_cast<std::size_t>(MemoryUse::kWorkspace);
    const std::size_t of_context = ctx.allocator->stats().live[workspace];
    const Tensor x = numbers(ctx, {1, 2}, DType::kF32);       // 1 2
    const Tensor weight = numbers(ctx, {3, 2}, DType::kF32);  // 1 2, 3 4, 5 6
    const Tensor bias = numbers(ctx, {3}, DType::kF32);
    const Tensor y = numbers(ctx, {1, 3}, DType::kF32);
    ops::linear(ctx, x, weight, bias, y);
    EXPECT_EQ(y.address<float>()[0], 1.0f) << "the product did not wait for the stream";
    ctx.stream.synchronize();
    const std::vector<float> values(y.address<float>(), y.address<float>() + 3);
    EXPECT_EQ(values, (std::vector<float>{5.0f + 1, 11.0f + 2, 17.0f + 3}));
    ASSERT_EQ(library_.queries().size(), 1u);
    EXPECT_EQ(library_.queries()[0].operation.epilogue, CUBLASLT_EPILOGUE_BIAS);
    EXPECT_GE(ctx.allocator->stats().peak[workspace], of_context + 1000);
    EXPECT_EQ(ctx.allocator->stats().live[workspace], of_context);
  }
  expect_nothing_left();
}

TEST_F(CublasLt, FusesABiasOfTheResultsTypeAlone) {
  const auto engine = ops::make_cublaslt_matmul(library_.table(), 0);
  using enum DType;
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kBF16, kBF16), kBF16)));
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kBF16, kF32), kF32)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kBF16, kBF16), kF32)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kBF16, kF32), kBF16)));
  EXPECT_TRUE(engine->fuses(with_bias(some_call(kF16, kF16), kF16)));
  EXPECT_FALSE(engine->fuses(with_bias(some_call(kF16, kF16), kBF16)));
}

TEST_F(CublasLt, AddsAMatrixWithinTheProduct) {
  library_.workspace = 8;
  ops::Context ctx = context();
  const Tensor x = numbers(ctx, {2, 1}, DType::kF32), weight = numbers(ctx, {4, 1}, DType::kF32);
  const Tensor bias = numbers(ctx, {4}, DType::kF32), y = numbers(ctx, {2, 4}, DType::kF32);
  for (const std::int64_t skip : {0, 1, 5}) {
    ops::linear_added(ctx, x, weight, bias, numbers(ctx, {2, 4}, DType::kF32, skip), y);
    ctx.stream.synchronize();
    EXPECT_EQ(y.address<float>()[7], 2.0f * 4.0f + 4.0f + 8.0f);
  }
  ASSERT_EQ(library_.queries().size(), 2u) << "one for each alignment of what is added";
  EXPECT_EQ(library_.products(), 3u);
  EXPECT_EQ(library_.queries()[0].preference.alignment, (std::array{16u, 16u, 16u, 16u}));
  EXPECT_EQ(library_.queries()[1].preference.alignment, (std::array{16u, 16u, 4u, 16u}));
  ops::matmul(ctx, x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  ops::linear(ctx, x, weight, bias, y);
  EXPECT_EQ(library_.queries().size(), 4u);
  const auto engine = ops::make_cublaslt_matmul(library_.table(), 0);
  ops::MatmulCall call = some_call(DType::kBF16, DType::kBF16);
  call.addend = call.a;
  EXPECT_TRUE(engine->fuses(call));
  EXPECT_FALSE(engine->fuses(with_gelu(call, ops::Epilogue::kGelu)));
}

TEST_F(CublasLt, ABiasMayMoveBetweenCalls) {
  ops::Context ctx = context();
  const Tensor x = numbers(ctx, {1, 1}, DType::kF32), weight = numbers(ctx, {4, 1}, DType::kF32);
  const Tensor biases = numbers(ctx, {2, 4}, DType::kF32), y = numbers(ctx, {1, 4}, DType::kF32);
  for (const std::int64_t row : {0, 1}) {
    ops::linear(ctx, x, weight, biases.rows(row, row + 1).reshape({4}), y);
    ctx.stream.synchronize();
    EXPECT_EQ(y.address<float>()[3], 4.0f + 4.0f * static_cast<float>(row + 1));
  }
  EXPECT_EQ(library_.queries().size(), 1u);
}

TEST_F(CublasLt, ChoosesAnAlgorithmOncePerShapeAndLayout) {
  ops::Context ctx = context();
  const auto chosen = [&] { return library_.queries().size(); };
  for (int step = 0; step < 3; ++step) product(ctx, 3, 4, 5);
  EXPECT_EQ(chosen(), 1u);
  product(ctx, 4, 3, 5);
  product(ctx, 3, 4, 5, DType::kBF16);
  EXPECT_EQ(chosen(), 3u);
  const Tensor square = numbers(ctx, {4, 4}, DType::kF32), c = numbers(ctx, {4, 4}, DType::kF32);
  const Tensor bias = numbers(ctx, {4}, DType::kF32);
  for (int step = 0; step < 2; ++step) {
    for (const Transpose ta : {Transpose::kNo, Transpose::kYes}) {
      for (const Transpose tb : {Transpose::kNo, Transpose::kYes}) {
        for (const float beta : {0.0f, 1.0f}) ops::matmul(ctx, square, ta, square, tb, beta, c);
      }
    }
    ops::linear(ctx, square, square, bias, c);
  }
  EXPECT_EQ(chosen(), 3u + 8u + 1u);
}

TEST_F(CublasLt, AnAlgorithmIsChosenForTheAlignmentOfItsOperands) {
  ops::Context ctx = context();
  product(ctx, 3, 4, 5);
  const auto alignment = [&] { return library_.queries().back().preference.alignment; };
  using Four = std::array<std::uint32_t, 4>;
  EXPECT_EQ(alignment(), (Four{16, 16, 16, 16}));  // 16 at most: more differs from run to run
  product(ctx, 3, 4, 5, DType::kF32, 1);           // its A is our b
  EXPECT_EQ(alignment(), (Four{16, 4, 16, 16}));
  product(ctx, 3, 4, 5, DType::kF32, 0, 2);
  EXPECT_EQ(alignment(), (Four{8, 16, 16, 16}));
  product(ctx, 3, 4, 5, DType::kF32, 0, 0, 3);
  EXPECT_EQ(alignment(), (Four{16, 16, 4, 4}));
  product(ctx, 3, 4, 5, DType::kBF16, 1, 2);
  EXPECT_EQ(alignment(), (Four{4, 2, 16, 16}));
  EXPECT_EQ(library_.queries().size(), 5u);
  product(ctx, 3, 4, 5, DType::kF32, 3);  // as aligned as one that was there
  EXPECT_EQ(library_.queries().size(), 5u);

  const Tensor x = numbers(ctx, {3, 5}, DType::kF32), weight = numbers(ctx, {4, 5}, DType::kF32);
  const Tensor y = numbers(ctx, {3, 4}, DType::kF32);
  for (const std::int64_t skip : {0, 1, 2, 4, 3, 0}) {
    ops::linear(ctx, x, weight, numbers(ctx, {4}, DType::kF32, skip), y);
  }
  EXPECT_EQ(library_.queries().size(), 5u + 3u);
}

TEST_F(CublasLt, AlgorithmsMayOnlySplitASumInOrderAndInFp32) {
  ops::Context ctx = context();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    product(ctx, 3, 4, 5, dtype);
    const FakeCublasLt::Query& query = library_.queries().back();
    EXPECT_EQ(query.preference.reductions, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    EXPECT_EQ(query.preference.workspace, kMostWorkspace);
    EXPECT_EQ(query.operation.scale, CUDA_R_32F);
    EXPECT_EQ(query.operation.compute, CUBLAS_COMPUTE_32F);
  }
}

TEST_F(CublasLt, Tf32OnRequestAndForFp32Alone) {
  ops::Context ctx = context({.tf32 = true});
  product(ctx, 3, 4, 5, DType::kF32);
  EXPECT_EQ(library_.queries().back().operation.compute, CUBLAS_COMPUTE_32F_FAST_TF32);
  product(ctx, 3, 4, 5, DType::kBF16);
  EXPECT_EQ(library_.queries().back().operation.compute, CUBLAS_COMPUTE_32F);
  EXPECT_EQ(ops::matmul_description(ctx, DType::kF32), "cuBLASLt 13.0.2 (TF32)");
  EXPECT_EQ(ops::matmul_description(ctx, DType::kBF16), "cuBLASLt 13.0.2");
  EXPECT_EQ(ops::matmul_description(context(), DType::kF32), "cuBLASLt 13.0.2");
}

// ops_matmul_test has the numbers, since the fake multiplies by the documented layouts.
TEST_F(CublasLt, MultipliesBlocksByTheirScales) {
  using enum ops::ScaledBlocks;
  ops::Context ctx = context();
  const auto matrix = [&](ops::ScaledBlocks blocks) {
    const ops::BlockScaled made = ops::allocate_scaled(ctx, 128, 128, blocks);
    std::memset(made.codes.raw(), 0x38, made.codes.bytes());  // 1
    for (std::int64_t i = 0; i < made.scales.elements(); ++i) made.scales.address<float>()[i] = 2;
    return made;
  };
  const ops::BlockScaled rows = matrix(kRows), tiles = matrix(kTiles), more = matrix(kRows);
  const Tensor c = numbers(ctx, {128, 128}, DType::kF32);
  for (const auto& [a, b] : {std::pair{rows, tiles}, {tiles, rows}, {rows, more}, {more, rows}}) {
    ops::scaled_matmul(ctx, a, b, Tensor(), 0.0f, c);
    ctx.stream.synchronize();
    EXPECT_EQ(c.address<float>()[77], 4.0f * 128.0f);
    const FakeCublasLt::Operation& asked = library_.queries().back().operation;
    // Its A is our b.
    const auto mode = [](const ops::BlockScaled& of) {
      return of.blocks == kTiles ? CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
                                 : CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    };
    EXPECT_EQ(asked.scale_modes, (std::array<std::int32_t, 2>{mode(b), mode(a)}));
    EXPECT_EQ(asked.compute, CUBLAS_COMPUTE_32F);
  }
  EXPECT_EQ(library_.queries().size(), 3u);  // the last two ask for the same
}

TEST_F(CublasLt, TellsWhetherItHasBlockScales) {
  using Has = FakeCublasLt::BlockScales;
  for (const Has has : {Has::kHas, Has::kNotOfGpu, Has::kUnknown}) {
    library_.block_scales = has;
    ops::Context ctx = context();
    std::string refused;
    try {
      ops::check_scaled_products(ctx);
    } catch (const CudaError& error) {
      refused = error.what();
    }
    EXPECT_EQ(refused, has == Has::kHas
                           ? ""
                           : "cuBLASLt 13.0.2 has no products of e4m3 with a scale for each block "
                             "of 128 on this device: they need a GPU of compute capability 9.0 "
                             "(H100, H200) and cuBLASLt 12.9 or newer");
    product(ctx, 3, 4, 5);  // others are not affected
  }
  library_.block_scales = Has::kHas;
  // A fault of the library is no answer.
  for (std::size_t n = 1; n <= 20; ++n) {
    ops::Context ctx = context();
    library_.fail_call(n);
    EXPECT_THROW(ops::check_scaled_products(ctx), CudaError) << n;
    library_.fail_call(0);
  }
}

TEST_F(CublasLt, LeavesMultiprocessorsToOthers) {
  cuda::DeviceProperties device;
  device.multiprocessors = 132;
  EXPECT_EQ(ops::product_settings(device, {}).multiprocessors, 0);
  for (const int spared : {0, 16}) {
    ops::Context ctx = context(ops::product_settings(device, {.spared = spared}));
    product(ctx, 3, 4, 5, DType::kBF16);
    EXPECT_EQ(library_.queries().back().operation.multiprocessors, spared == 0 ? 0 : 116);
  }
}

TEST_F(CublasLt, TakesTheAlgorithmsThatWereChosen) {
  library_.workspace = 64;
  library_.proposals = 3;
  ops::Context ctx = context();
  product(ctx, 3, 4, 5, DType::kBF16, 1, 2);
  product(ctx, 3, 4, 5, DType::kBF16, 1, 2);
  product(ctx, 6, 4, 5);
  EXPECT_EQ(library_.last_algorithm, FakeCublasLt::kFirstId);
  ops::ProductAlgorithms* const algorithms = ops::product_algorithms(ctx);
  ASSERT_NE(algorithms, nullptr);
  EXPECT_EQ(ops::product_machine(ctx), (ops::ProductMachine{.gpu = cuda_->properties(0).name,
                                                            .library = "cuBLASLt 13.0.2",
                                                            .workspace = kMostWorkspace}));
  const auto made = algorithms->made();
  ASSERT_EQ(made.size(), 2u);
  const auto& [odd, times] = *made.begin();
  EXPECT_EQ(times, 2);
  EXPECT_EQ(odd.alignment, (std::array{2u, 4u, 16u, 16u, 16u, 16u}));
  EXPECT_EQ(made.rbegin()->second, 1);

  const std::vector<ops::ProductAlgorithm> proposed = algorithms->proposed(odd, 8);
  ASSERT_EQ(proposed.size(), 3u);
  EXPECT_EQ(algorithms->proposed(odd, 2).size(), 2u);
  const ops::ProductChoice choice{.product = odd, .algorithm = proposed[2]};
  EXPECT_TRUE(algorithms->fits(choice.product, choice.algorithm));
  algorithms->use(std::array{choice});
  const std::size_t asked = library_.queries().size();
  for (int time = 0; time < 2; ++time) product(ctx, 3, 4, 5, DType::kBF16, 1, 2);
  EXPECT_EQ(library_.last_algorithm, FakeCublasLt::kFirstId + 2);
  EXPECT_EQ(library_.queries().size(), asked) << "nothing is proposed for it";
  product(ctx, 3, 4, 5, DType::kBF16, 2, 2);
  EXPECT_EQ(library_.last_algorithm, FakeCublasLt::kFirstId) << "of another alignment";
  product(ctx, 6, 4, 5);
  EXPECT_EQ(library_.last_algorithm, FakeCublasLt::kFirstId);
}

TEST_F(CublasLt, AnAlgorithmThatDoesNotFitIsTold) {
  library_.proposals = 2;
  library_.workspace = 64;
  ops::Context ctx = context();
  ops::ProductAlgorithms& algorithms = *ops::product_algorithms(ctx);
  const ops::Product some{.m = 8, .n = 8, .k = 8};
  const auto fits = [&](std::string_view attribute, std::uint32_t value) {
    ops::ProductAlgorithm algorithm = algorithms.proposed(some, 1).front();
    const auto place = std::ranges::find(ops::kAlgorithmAttributes, attribute);
    algorithm.attributes[place - ops::kAlgorithmAttributes.begin()] = value;
    return algorithms.fits(some, algorithm);
  };
  EXPECT_TRUE(fits("swizzle", 1));
  EXPECT_FALSE(fits("id", FakeCublasLt::kFirstId + 2)) << "this library does not know it";
  EXPECT_FALSE(fits("tile", 7)) << "it refuses that";
  EXPECT_FALSE(fits("cluster", 0x10000)) << "it has 16 bits";
  EXPECT_TRUE(fits("reduction", CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  EXPECT_FALSE(fits("reduction", CUBLASLT_REDUCTION_SCHEME_INPLACE)) << "adds up in any order";
  EXPECT_FALSE(fits("reduction", CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) << "rounds twice";
  library_.workspace = kMostWorkspace + 1;
  EXPECT_FALSE(fits("swizzle", 1)) << "it takes more workspace than there is";
}

TEST_F(CublasLt, AMadeUpProductIsOfItsKind) {
  library_.workspace = 64;
  {
    ops::Context ctx = context();
    ops::ProductAlgorithms& algorithms = *ops::product_algorithms(ctx);
    using enum DType;
    using enum ops::Epilogue;
    std::vector<ops::Product> kinds = {
        {.m = 8, .n = 16, .k = 24},
        {.m = 8, .n = 16, .k = 24, .transpose_a = true, .dtype = kBF16, .accumulates = true},
        {.m = 8, .n = 16, .k = 24, .dtype = kBF16, .result = kBF16, .adds = true, .has_bias = true},
        {.m = 8, .n = 16, .k = 24, .has_bias = true, .epilogue = kGelu},
        {.m = 8, .n = 16, .k = 24, .sums_bias = true, .epilogue = kGeluBackward}};
    kinds.push_back(kinds[2]);
    kinds.back().alignment = {2, 4, 8, 16, 8, 16};
    for (const ops::Product& kind : kinds) {
      ops::made_up_product(ctx, kind)();
      ctx.stream.synchronize();
      const auto made = algorithms.made();
      EXPECT_EQ(made.count(kind), 1u) << ops::text_of(kind);
      algorithms.use({});
    }
  }
  expect_nothing_left();
}

ops::ProductFile some_file() {
  const ops::Product product{.m = 65536,
                             .n = 768,
                             .k = 3072,
                             .transpose_b = true,
                             .dtype = DType::kBF16,
                             .result = DType::kBF16,
                             .adds = true,
                             .has_bias = true,
                             .alignment = {16, 2, 4, 8, 16, 16}};
  const ops::Product other{
      .m = 1, .n = 2, .k = 3, .sums_bias = true, .epilogue = ops::Epilogue::kGeluBackward};
  return {.machine = {.gpu = "NVIDIA H200",
                      .library = "cuBLASLt 13.1.0",
                      .workspace = std::size_t{32} << 20,
                      .multiprocessors = 116},
          .choices = {{.product = product,
                       .algorithm = {{66, 20, 1, 0, 1, 2, 3, 4, 5}},
                       .seconds = 1e-3,
                       .first = 2e-3},
                      {.product = other, .algorithm = {{1, 2, 3, 2, 0, 0, 0, 0, 65535}}}}};
}

TEST(ProductFile, ReadsWhatItWrites) {
  const ops::ProductFile file = some_file();
  const std::string text = ops::write_products(file);
  const ops::ProductFile read = ops::read_products(text, "products.json");
  EXPECT_EQ(read.machine, file.machine);
  EXPECT_EQ(read.choices, file.choices);
  EXPECT_TRUE(ops::read_products(ops::write_products({.machine = file.machine, .choices = {}}), "")
                  .choices.empty());
  EXPECT_EQ(ops::text_of(file.choices[0].product),
            "(65536, 3072) by (768, 3072)^T in bf16 into bf16 with a bias, added to a matrix");
}

TEST(ProductFile, RefusesWhatIsNotOne) {
  const std::string good = ops::write_products(some_file());
  const auto refusal = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    if (const std::size_t at = text.find(from); at != std::string::npos) {
      text.replace(at, from.size(), to);
    } else {
      ADD_FAILURE() << from;
    }
    try {
      ops::read_products(text, "products.json");
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal("trireme_products", "other"),
            "products.json: has no trireme_products: it is no file of trireme bench products");
  EXPECT_EQ(refusal("\"trireme_products\":1", "\"trireme_products\":2"),
            "products.json: is of format 2, and this version reads 1");
  EXPECT_EQ(refusal("\"m\":65536", "\"m\":0"),
            "products.json: product 1: m is 0, not from 1 to 1099511627776");
  EXPECT_EQ(refusal("\"type\":\"bf16\"", "\"type\":\"fp8\""),
            "products.json: product 1: type is fp8, not fp32, bf16 or fp16");
  EXPECT_EQ(refusal("gelu_backward", "relu"),
            "products.json: product 2: epilogue is relu, not none, gelu or gelu_backward");
  EXPECT_EQ(refusal("[16,2", "[16,3"),
            "products.json: product 1: alignment is 3, not 1, 2, 4, 8 or 16");
  EXPECT_EQ(refusal("[16,2,", "[16,"), "products.json: product 1: alignment has 5 numbers, not 6");
  EXPECT_EQ(refusal("\"tile\":20", "\"tile\":-1"),
            "products.json: product 1: tile is -1, not from 0 to 2147483647");
  EXPECT_NE(refusal("\"tile\"", "\"tiles\"").find("product 1"), std::string::npos);
  EXPECT_NE(refusal("]}", "").find("products.json: "), std::string::npos);
  ops::ProductFile twice = some_file();
  twice.choices.push_back(twice.choices.front());
  EXPECT_THROW(ops::read_products(ops::write_products(twice), ""), ConfigError);
}

TEST_F(CublasLt, AnErrorAtAnyCallNamesItAndTheShapeAndLeavesNothing) {
  library_.workspace = 256;
  expect_errors_of_every_call("with a bias", [](ops::Context& ctx) {
    const Tensor y = numbers(ctx, {2, 8}, DType::kBF16);
    ops::linear(ctx, numbers(ctx, {2, 3}, DType::kBF16), numbers(ctx, {8, 3}, DType::kBF16),
                numbers(ctx, {8}, DType::kBF16), y);
    ctx.stream.synchronize();
    EXPECT_EQ(static_cast<float>(y.address<BFloat16>()[0]), 14.0f + 1.0f);
  });
}

TEST_F(CublasLt, NoMemoryForTheWorkspaceIsSaidAndLeavesNothing) {
  {
    ops::Context ctx = context();
    library_.workspace = std::size_t{4} << 30;
    EXPECT_THROW(product(ctx, 3, 4, 5), OutOfMemoryError);
    EXPECT_EQ(library_.products(), 0u);
  }
  expect_nothing_left();
}

TEST_F(CublasLt, WhereNoAlgorithmFitsTheShapeIsNamed) {
  ops::Context ctx = context();
  library_.has_algorithm = false;
  try {
    product(ctx, 3, 4, 5);
    FAIL();
  } catch (const CudaError& error) {
    EXPECT_STREQ(error.what(),
                 "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_NOT_SUPPORTED, multiplying (3, 5) "
                 "by (5, 4) in fp32 into fp32");
  }
  EXPECT_THROW(product(ctx, 3, 4, 5), CudaError);
  EXPECT_EQ(library_.queries().size(), 1u) << "the answer does not change";
}

std::string refusal_of(const std::vector<std::string>& names) {
  try {
    ops::load_cublaslt(names);
  } catch (const CudaError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CublasLtLibrary, SaysWhatWasTried) {
  const std::string message = refusal_of({"libnone.so.1", "/nowhere/libnone.so.1"});
  EXPECT_EQ(message.find("cuBLASLt, which multiplies matrices on a GPU, is not here: libnone.so.1"),
            0u)
      << message;
  EXPECT_NE(message.find("(tried libnone.so.1, /nowhere/libnone.so.1)"), std::string::npos)
      << message;
  EXPECT_EQ(refusal_of({"libm.so.6"}), "libm.so.6 has no function cublasLtGetVersion");
}

// The real descriptors, which need no GPU, take what they are given; algorithm and product are
// scripted.
TEST(CublasLtLibrary, ItsDescriptorsTakeWhatTheyAreGiven) {
  const std::vector<std::string> names = cuda_library_names("cublasLt", CUBLAS_VER_MAJOR);
  if (!DynamicLibrary(names).found()) GTEST_SKIP() << "cuBLASLt is not here";
  ops::CublasLt library = ops::load_cublaslt(names);
  EXPECT_EQ(library.get_version() / 10000, static_cast<std::size_t>(CUBLAS_VER_MAJOR));
  library.create = [](cublasLtHandle_t*) { return CUBLAS_STATUS_SUCCESS; };
  library.destroy = [](cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; };
  library.heuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t results[],
                         int* found) {
    *found = 1;
    results[0] = {};
    return CUBLAS_STATUS_SUCCESS;
  };
  library.matmul = [](cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void*,
                      cublasLtMatrixLayout_t, const void*, cublasLtMatrixLayout_t, const void*,
                      const void*, cublasLtMatrixLayout_t, void*, cublasLtMatrixLayout_t,
                      const cublasLtMatmulAlgo_t*, void*, std::size_t,
                      cudaStream_t) { return CUBLAS_STATUS_SUCCESS; };
  const auto engine = ops::make_cublaslt_matmul(library, kMostWorkspace, {.tf32 = true});
  ops::Context ctx;
  using enum DType;
  using enum ops::Epilogue;
  for (const DType dtype : {kF32, kBF16, kF16}) {
    engine->run(ctx, with_bias(some_call(dtype, dtype), dtype));
    engine->run(ctx, with_gelu(with_bias(some_call(dtype, dtype), dtype), kGelu));
    engine->run(ctx, with_gelu(some_call(dtype, dtype), kGeluBackward));
  }
  ops::MatmulCall with_sums = with_gelu(some_call(kF32, kF32), kGeluBackward);
  with_sums.bias_gradient = static_cast<float*>(with_sums.c);
  engine->run(ctx, with_sums);
}

}  // namespace
}  // namespace trireme

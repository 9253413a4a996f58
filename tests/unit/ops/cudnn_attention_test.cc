// Which attention cuDNN takes for a Hopper GPU, asked of cuDNN itself on a machine without one: it
// matches the graphs to its engines and compiles them; only loading the code needs the GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "ops/attention_engine.h"
#include "support/described_gpu.h"

namespace trireme {
namespace {

using ops::AttentionKind;

class CudnnAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!find_cuda_driver()) GTEST_SKIP() << dlerror();
    try {
      engine = ops::make_cudnn_attention_for(hopper(), kHopper);
    } catch (const CudaError& error) {
      GTEST_SKIP() << error.what();
    }
  }
  std::string why_not(const ops::AttentionShape& shape, DType dtype = DType::kBF16,
                      bool masks_documents = false) {
    return engine->why_not({shape, dtype, masks_documents});
  }

  std::shared_ptr<ops::AttentionEngine> engine;
};

TEST_F(CudnnAttention, TakesTheModels) {
  EXPECT_EQ(engine->description().substr(0, 8), "cuDNN 9.");
  EXPECT_EQ(why_not({.batch = 64, .length = 1024, .heads = 12, .kv_heads = 12, .head_size = 64}),
            "");
  EXPECT_EQ(why_not({.batch = 8, .length = 2048, .heads = 32, .kv_heads = 8, .head_size = 128}),
            "");
  const ops::AttentionShape odd = {
      .batch = 2, .length = 100, .heads = 4, .kv_heads = 1, .head_size = 48};
  EXPECT_EQ(why_not(odd), "");
  EXPECT_EQ(why_not(odd, DType::kF16), "");
}

// Vision transformers have odd lengths: a position for each patch, and one for the class token.
TEST_F(CudnnAttention, TakesBidirectionalModels) {
  EXPECT_EQ(why_not({.batch = 64,
                     .length = 512,
                     .heads = 12,
                     .kv_heads = 12,
                     .head_size = 64,
                     .causal = false}),
            "");
  for (const std::int64_t length : {65, 197}) {
    EXPECT_EQ(why_not({.batch = 64,
                       .length = length,
                       .heads = 3,
                       .kv_heads = 3,
                       .head_size = 64,
                       .causal = false}),
              "")
        << length;
  }
}

TEST_F(CudnnAttention, TakesTheModelsInAnyOrder) {
  AttentionKind kind = {
      {.batch = 64, .length = 1024, .heads = 12, .kv_heads = 12, .head_size = 64}};
  kind.any_order = true;
  EXPECT_EQ(engine->why_not(kind), "");
}

TEST_F(CudnnAttention, SaysWhatItDoesNotTake) {
  const ops::AttentionShape small = {
      .batch = 2, .length = 64, .heads = 4, .kv_heads = 4, .head_size = 64};
  EXPECT_EQ(why_not(small, DType::kBF16, true), "documents are masked");
  EXPECT_EQ(engine->why_not({small, DType::kBF16, false, true}), "padding is masked");
  EXPECT_EQ(why_not(small, DType::kF32), "not in fp32");
  ops::AttentionShape wide = small;
  wide.head_size = 512;
  EXPECT_NE(why_not(wide), "");
  ops::AttentionShape odd = small;
  odd.head_size = 20;
  EXPECT_NE(why_not(odd).find("multiple of 8"), std::string::npos) << why_not(odd);
}

TEST_F(CudnnAttention, RefusesAnotherDescription) {
  EXPECT_THROW(ops::make_cudnn_attention_for(hopper(), "{}"), CudaError);
}

TEST_F(CudnnAttention, DoesNotRunOnADescription) {
  ops::Context ctx;
  const AttentionKind kind = {
      {.batch = 1, .length = 8, .heads = 1, .kv_heads = 1, .head_size = 64}, DType::kBF16, false};
  EXPECT_THROW(engine->forward(ctx, kind, {}, {}, {}), InternalError);
}

}  // namespace
}  // namespace trireme

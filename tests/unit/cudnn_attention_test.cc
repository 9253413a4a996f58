// Which attention cuDNN takes for a Hopper GPU, asked of cuDNN itself on a machine without one: it
// matches the graphs to its engines and compiles them; only loading the code needs the GPU.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "ops/attention_engine.h"

namespace trireme {
namespace {

using ops::AttentionKind;

// An H200, as cuDNN writes a device's properties.
constexpr const char* kHopper =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,)"
    R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
    R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,)"
    R"("deviceName":"NVIDIA H200","deviceVer":900,"driverVer":13000,)"
    R"("totalGlobalMem":150754820096,"cudaDeviceId":0})";

cuda::DeviceProperties hopper() {
  cuda::DeviceProperties device;
  device.major = 9;
  device.multiprocessors = 132;
  return device;
}

class CudnnAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    // cuDNN's compiler looks for the driver by this name; the toolkit's stand-in carries it.
    if (dlopen("libcuda.so.1", RTLD_NOW) == nullptr &&
        dlopen(TRIREME_CUDA_DRIVER, RTLD_NOW) == nullptr) {
      GTEST_SKIP() << dlerror();
    }
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

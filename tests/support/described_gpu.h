// A Hopper GPU that is only described, for asking cuDNN on a machine without one.
#pragma once

#include <dlfcn.h>

#include "trireme/tensor/cuda.h"

namespace trireme {

// An H200, as cuDNN writes a device's properties.
inline constexpr const char* kHopper =
    R"({"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],"regsPerBlock":65536,)"
    R"("multiProcessorCount":132,"warpSize":32,"maxSharedMemoryPerBlock":49152,)"
    R"("maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,)"
    R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
    R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
    R"("smClockRateKHz":1980000,"memClockRateKHz":3201000,"l2CacheSize":62914560,)"
    R"("deviceName":"NVIDIA H200","deviceVer":900,"driverVer":13000,)"
    R"("totalGlobalMem":150754820096,"cudaDeviceId":0})";

inline cuda::DeviceProperties hopper() {
  cuda::DeviceProperties device;
  device.major = 9;
  device.multiprocessors = 132;
  return device;
}

// cuDNN's compiler looks for the driver by this name; the toolkit's stand-in carries it. False if
// neither opens; dlerror() then says why.
inline bool find_cuda_driver() {
  return dlopen("libcuda.so.1", RTLD_NOW) != nullptr ||
         dlopen(TRIREME_CUDA_DRIVER, RTLD_NOW) != nullptr;
}

}  // namespace trireme

// Functions that are compiled for GPUs as well as for the host.
#pragma once

#if defined(__CUDACC__)
#define TRIREME_ON_DEVICE __host__ __device__
#else
#define TRIREME_ON_DEVICE
#endif

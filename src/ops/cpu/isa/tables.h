// One table of each kind per instruction set.
#pragma once

#include "ops/cpu/kernels.h"

#define TRIREME_DECLARE_TABLES(isa)             \
  namespace trireme::ops::cpu::isa {            \
  extern const ElementwiseKernels kElementwise; \
  extern const NormKernels kNorm;               \
  extern const SoftmaxKernels kSoftmax;         \
  extern const UpdateKernels kUpdate;           \
  extern const AttentionKernels kAttention;     \
  extern const BatchNormKernels kBatchNorm;     \
  extern const PictureKernels kPictures;        \
  extern const ProductKernels kProduct;         \
  extern const QuantizeKernels kQuantize;       \
  }

TRIREME_DECLARE_TABLES(baseline)
TRIREME_DECLARE_TABLES(avx2)
TRIREME_DECLARE_TABLES(avx512)

#undef TRIREME_DECLARE_TABLES

// What our uses of oneDNN share, and what differs between oneDNN 2 and 3: since 3 there are no
// descriptors of operations apart from those of primitives.
#pragma once

#include <oneapi/dnnl/dnnl.hpp>

#include "trireme/tensor/dtype.h"

#ifdef _OPENMP
#include <omp.h>
#endif

namespace trireme::ops::onednn {

inline dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::kF32 ? dnnl::memory::data_type::f32 : dnnl::memory::data_type::bf16;
}

// oneDNN plans for OpenMP's number of threads at that time, so both must agree.
inline void use_threads(int threads) {
#ifdef _OPENMP
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
#else
  static_cast<void>(threads);
#endif
}

// The description of a primitive from what describes the operation. `hints` are descriptions of
// other primitives that it depends on.
template <class Primitive, class... Hints, class... Arguments>
typename Primitive::primitive_desc describe(const dnnl::engine& engine,
                                            const dnnl::primitive_attr& attributes,
                                            std::tuple<const Hints&...> hints,
                                            const Arguments&... arguments) {
  return std::apply(
      [&](const Hints&... hint) {
#if DNNL_VERSION_MAJOR >= 3
        return typename Primitive::primitive_desc(engine, arguments..., hint..., attributes);
#else
        return typename Primitive::primitive_desc(typename Primitive::desc(arguments...),
                                                  attributes, engine, hint...);
#endif
      },
      hints);
}

template <class Primitive, class... Arguments>
typename Primitive::primitive_desc describe(const dnnl::engine& engine,
                                            const dnnl::primitive_attr& attributes,
                                            const Arguments&... arguments) {
  return describe<Primitive>(engine, attributes, std::tuple<>(), arguments...);
}

}  // namespace trireme::ops::onednn

option(TRIREME_TESTS "Build the tests" ON)
option(TRIREME_FULL_TESTS "Time for the whole products that tests/run.sh --full takes, and tests that only it runs" OFF)
option(TRIREME_STRICT "Warnings are errors" OFF)
option(TRIREME_BENCHMARKS "Build the benchmarks in perf/" ON)
option(TRIREME_PRECOMPILED_HEADERS "Parse the headers that most files include once" ON)
set(TRIREME_UNITY 0 CACHE STRING
  "Compile that many files of a layer whose code runs once as one; 0: each on its own")
option(TRIREME_OPENMP "Run operations on several threads with OpenMP" ON)
set(TRIREME_CUDA AUTO CACHE STRING "Run on NVIDIA GPUs: AUTO (where the toolkit is found), ON or OFF")
set(TRIREME_NCCL AUTO CACHE STRING "NCCL's communicators: AUTO, ON or OFF")
set(TRIREME_CUDNN AUTO CACHE STRING "Attention by cuDNN: AUTO, ON or OFF")
set(TRIREME_CUDA_ARCHITECTURES AUTO CACHE STRING
    "Compute capabilities to compile for, as in 80;90a; AUTO: of this machine's GPUs; release: all that packages carry")
set_property(CACHE TRIREME_CUDA TRIREME_NCCL TRIREME_CUDNN PROPERTY STRINGS AUTO ON OFF)
set(TRIREME_SANITIZE "" CACHE STRING "Sanitizers, as given to -fsanitize=, e.g. address,undefined")

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# Nothing is compiled for the build host's processor: files that need more than baseline x86-64
# name their instruction sets per function or per file and are chosen at run time.
set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wvla)
if(TRIREME_STRICT)
  list(APPEND warnings -Werror)
endif()
if(NOT TRIREME_OPENMP)
  list(APPEND warnings -Wno-unknown-pragmas)
endif()
find_program(CCACHE ccache)
# Messages name a source file as it is named in the repository, not by the build machine's path.
# ccache passes paths on as they are from the build folder, and would take an absolute one among
# nvcc's options for another compilation in each clone.
file(RELATIVE_PATH source_from_build ${CMAKE_BINARY_DIR} ${PROJECT_SOURCE_DIR})
set(names -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/= -fmacro-prefix-map=${source_from_build}=)
# nvcc has warnings of its own, and what its host compiler is told stands in one option.
set(host_options ${names})
if(CCACHE)
  set(host_options -fmacro-prefix-map=${source_from_build}=)
endif()
list(JOIN host_options "," host_options)
set(nvcc_options "")
if(TRIREME_STRICT)
  set(nvcc_options -Werror=all-warnings)
endif()
list(APPEND nvcc_options --compiler-options=-Wall,-Wextra,-Wno-unknown-pragmas,${host_options})
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${warnings};${names}>"
                    "$<$<COMPILE_LANGUAGE:CUDA>:${nvcc_options}>")
if(TRIREME_SANITIZE)
  # Any finding ends the program: a test that only prints one would pass. The instrumented code
  # makes g++ 12 see uninitialised values that are not there.
  set(instrumented -fsanitize=${TRIREME_SANITIZE} -fno-sanitize-recover=all
                   -fno-omit-frame-pointer -Wno-maybe-uninitialized)
  # A quarter of the time of a compilation, for accesses that the address sanitizer stops too.
  if(TRIREME_SANITIZE MATCHES undefined)
    list(APPEND instrumented -fno-sanitize=null,object-size,vptr)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${instrumented}>")
  add_link_options(-fsanitize=${TRIREME_SANITIZE})
endif()

# Paths are relative to the source tree in what ccache compares, so one clone's objects serve all.
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without these it takes nothing that was compiled with precompiled headers.
  set(ccache_settings CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}
      CCACHE_SLOPPINESS=pch_defines,time_macros)
  if(TRIREME_SANITIZE)
    list(APPEND ccache_settings CCACHE_NOHASHDIR=1)  # debug information only for stack traces
  endif()
  set(CMAKE_CXX_COMPILER_LAUNCHER env ${ccache_settings} ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

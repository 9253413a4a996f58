# What of NVIDIA's is built in: TRIREME_HAVE_CUDA, TRIREME_HAVE_NCCL, TRIREME_HAVE_CUDNN and TRIREME_HAVE_CUPTI,
# the versions of the headers, and trireme_cuda_sources. The runtime is linked statically and needs no
# driver to start; cuBLASLt, cuDNN, NCCL, CUPTI and the driver itself are opened when they are first used
# (include/trireme/base/dynamic_library.h), so none of them is looked up by the loader.
foreach(part CUDA NCCL CUDNN)
  string(TOUPPER "${TRIREME_${part}}" wanted)
  if(NOT wanted MATCHES "^(AUTO|ON|OFF)$")
    message(FATAL_ERROR "TRIREME_${part} is '${TRIREME_${part}}': expected AUTO, ON or OFF")
  endif()
  set(TRIREME_${part} ${wanted})
  set(TRIREME_HAVE_${part} OFF)
endforeach()
set(TRIREME_HAVE_CUPTI OFF)

# A part of the toolkit that AUTO does without and ON insists on.
function(_trireme_missing part reason)
  if(TRIREME_${part} STREQUAL ON)
    message(FATAL_ERROR "TRIREME_${part}=ON, but ${reason}")
  endif()
  message(STATUS "${part}: off, ${reason}")
endfunction()

if(TRIREME_CUDA STREQUAL OFF)
  message(STATUS "CUDA: off, as TRIREME_CUDA says")
else()
  # nvcc is what CMake would be told, or lies in the PATH or where NVIDIA's installer puts it.
  find_program(TRIREME_NVCC NAMES ${CMAKE_CUDA_COMPILER} $ENV{CUDACXX} nvcc
               PATHS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  mark_as_advanced(TRIREME_NVCC)
  if(NOT TRIREME_NVCC)
    _trireme_missing(CUDA "nvcc was found neither in the PATH nor in CUDA_HOME nor in /usr/local/cuda")
  else()
    set(TRIREME_HAVE_CUDA ON)
  endif()
endif()

if(NOT TRIREME_HAVE_CUDA)
  foreach(part NCCL CUDNN)
    if(TRIREME_${part} STREQUAL ON)
      message(FATAL_ERROR "TRIREME_${part}=ON, but CUDA is off")
    endif()
  endforeach()
else()
  set(architectures ${TRIREME_CUDA_ARCHITECTURES})
  set(why "as TRIREME_CUDA_ARCHITECTURES says")
  if(architectures STREQUAL AUTO)
    include(TriremeCudaArchitectures)
    trireme_architectures_here(architectures why)
  elseif(architectures STREQUAL release)
    # Machine code for Ampere and Ada, Hopper, and both Blackwells; what comes later gets PTX.
    set(architectures 80-real 90a-real 100-real 120-real 120-virtual)
  endif()
  list(TRANSFORM architectures REPLACE "^([0-9]+a?)$" "\\1-real")
  set(CMAKE_CUDA_COMPILER ${TRIREME_NVCC})
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  set(CMAKE_CUDA_ARCHITECTURES ${architectures})
  set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # linked by name, so that an installed package can name it
  enable_language(CUDA)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25.1 does not know that nvcc speaks C++20
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  set(CMAKE_CUDA_STANDARD ${CMAKE_CXX_STANDARD})
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  find_package(CUDAToolkit REQUIRED)
  list(TRANSFORM architectures REPLACE "-real$" "" OUTPUT_VARIABLE TRIREME_CUDA_BUILT_FOR)
  list(TRANSFORM TRIREME_CUDA_BUILT_FOR REPLACE "^([0-9]+)-virtual$" "\\1 PTX")
  list(JOIN TRIREME_CUDA_BUILT_FOR ", " TRIREME_CUDA_BUILT_FOR)

  # The value of a macro of a header.
  function(_trireme_header_number header macro result)
    file(STRINGS ${header} line REGEX "^#define[ \t]+${macro}[ \t]+[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+" number "${line}")
    set(${result} "${number}" PARENT_SCOPE)
  endfunction()
  # The version that three macros of a header give, as 9.19.0.
  function(_trireme_header_version header major minor patch result)
    foreach(macro ${major} ${minor} ${patch})
      _trireme_header_number(${header} ${macro} number)
      list(APPEND numbers "${number}")
    endforeach()
    list(JOIN numbers "." version)
    set(${result} "${version}" PARENT_SCOPE)
  endfunction()

  set(headers ${CUDAToolkit_INCLUDE_DIRS})
  find_path(TRIREME_CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${headers} REQUIRED)
  find_path(TRIREME_NCCL_INCLUDE_DIR nccl.h HINTS ${headers})
  find_path(TRIREME_CUDNN_INCLUDE_DIR cudnn_version.h HINTS ${headers})
  # A package of PyPI's; jobs/install_cudnn_frontend.sh puts it there.
  find_path(TRIREME_CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
            HINTS ${headers} ${PROJECT_SOURCE_DIR}/build/cudnn_frontend/include)
  mark_as_advanced(TRIREME_CUBLASLT_INCLUDE_DIR TRIREME_NCCL_INCLUDE_DIR TRIREME_CUDNN_INCLUDE_DIR
                   TRIREME_CUDNN_FRONTEND_INCLUDE_DIR)
  _trireme_header_version(${TRIREME_CUBLASLT_INCLUDE_DIR}/cublas_api.h
    CUBLAS_VER_MAJOR CUBLAS_VER_MINOR CUBLAS_VER_PATCH TRIREME_CUBLASLT_VERSION)
  if(TRIREME_NCCL STREQUAL OFF)
    message(STATUS "NCCL: off, as TRIREME_NCCL says")
  elseif(NOT TRIREME_NCCL_INCLUDE_DIR)
    _trireme_missing(NCCL "nccl.h was not found")
  else()
    set(TRIREME_HAVE_NCCL ON)
    _trireme_header_version(${TRIREME_NCCL_INCLUDE_DIR}/nccl.h
      NCCL_MAJOR NCCL_MINOR NCCL_PATCH TRIREME_NCCL_VERSION)
  endif()
  if(TRIREME_CUDNN STREQUAL OFF)
    message(STATUS "cuDNN: off, as TRIREME_CUDNN says")
  elseif(NOT TRIREME_CUDNN_INCLUDE_DIR)
    _trireme_missing(CUDNN "cudnn_version.h was not found")
  elseif(NOT TRIREME_CUDNN_FRONTEND_INCLUDE_DIR)
    _trireme_missing(CUDNN "cudnn_frontend.h was not found: jobs/install_cudnn_frontend.sh brings it")
  else()
    set(TRIREME_HAVE_CUDNN ON)
    _trireme_header_version(${TRIREME_CUDNN_INCLUDE_DIR}/cudnn_version.h
      CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL TRIREME_CUDNN_VERSION)
  endif()
  # What traces kernels has no option, since only `bench step --kernels` opens it. Since CUDA 13 the version of
  # CUPTI begins with the toolkit's, and so it tells which records a library writes.
  find_path(TRIREME_CUPTI_INCLUDE_DIR cupti.h HINTS ${headers} ${CUDAToolkit_BIN_DIR}/../extras/CUPTI/include)
  mark_as_advanced(TRIREME_CUPTI_INCLUDE_DIR)
  if(TRIREME_CUPTI_INCLUDE_DIR AND CUDAToolkit_VERSION VERSION_GREATER_EQUAL 13)
    set(TRIREME_HAVE_CUPTI ON)
    find_library(TRIREME_CUPTI_LIBRARY NAMES libcupti.so.${CUDAToolkit_VERSION_MAJOR} HINTS ${CUDAToolkit_LIBRARY_DIR}
                 ${TRIREME_CUPTI_INCLUDE_DIR}/../lib ${TRIREME_CUPTI_INCLUDE_DIR}/../lib64)
    mark_as_advanced(TRIREME_CUPTI_LIBRARY)
  else()
    message(STATUS "CUPTI: off, cupti.h of CUDA 13 or later was not found")
  endif()
  message(STATUS "CUDA: ${CUDAToolkit_VERSION} for ${TRIREME_CUDA_BUILT_FOR}, ${why}")

  # What the program opens, and where it may be, for a package of it (TriremePackage.cmake).
  string(REGEX MATCH "^[0-9]+" _cuda_major ${CUDAToolkit_VERSION})
  string(REGEX MATCH "^[0-9]+" _cublaslt_major ${TRIREME_CUBLASLT_VERSION})
  set(TRIREME_CUDA_LIBRARIES libcudart.so.${_cuda_major} libcublasLt.so.${_cublaslt_major})
  if(TRIREME_HAVE_CUDNN)  # compiles by NVRTC
    list(APPEND TRIREME_CUDA_LIBRARIES libcudnn.so.9 libcudnn_*.so.9 libnvrtc.so.${_cuda_major}
         libnvrtc-builtins.so.${_cuda_major}.*)
  endif()
  if(TRIREME_HAVE_NCCL)
    list(APPEND TRIREME_CUDA_LIBRARIES libnccl.so.2)
  endif()
  set(TRIREME_CUDA_FOLDERS ${CUDAToolkit_LIBRARY_DIR} /usr/local/cuda/lib64
      /usr/lib/x86_64-linux-gnu)
  if(TRIREME_CUPTI_LIBRARY)  # without it the program traces no kernels
    cmake_path(GET TRIREME_CUPTI_LIBRARY FILENAME _cupti)
    cmake_path(GET TRIREME_CUPTI_LIBRARY PARENT_PATH _cupti_folder)
    list(APPEND TRIREME_CUDA_LIBRARIES ${_cupti})
    list(APPEND TRIREME_CUDA_FOLDERS ${_cupti_folder})
  endif()
endif()

# trireme_cuda_sources(TARGET CUDA file... [WITHOUT file...])
# Adds the files of CUDA, .cu by nvcc and others by the C++ compiler, or those that stand in for
# them in a build without it. The former see the toolkit's headers, those for C++ also cuBLASLt's,
# cuDNN's, NCCL's and CUPTI's. The target's other files do not: their commands are those of a build
# without CUDA, and so the compiler cache serves both.
function(trireme_cuda_sources target)
  cmake_parse_arguments(ARG "" "" "CUDA;WITHOUT" ${ARGN})
  if(NOT TRIREME_HAVE_CUDA)
    target_sources(${target} PRIVATE ${ARG_WITHOUT})
    return()
  endif()
  target_sources(${target} PRIVATE ${ARG_CUDA})
  target_link_libraries(${target} PRIVATE $<LINK_ONLY:CUDA::cudart_static>)
  set(folders ${CUDAToolkit_INCLUDE_DIRS} ${TRIREME_CUBLASLT_INCLUDE_DIR})
  foreach(part IN ITEMS NCCL CUDNN CUPTI)
    if(TRIREME_HAVE_${part})
      list(APPEND folders ${TRIREME_${part}_INCLUDE_DIR})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES folders)
  list(TRANSFORM folders PREPEND -isystem)
  list(FILTER ARG_CUDA EXCLUDE REGEX "\\.cu$")  # nvcc knows its own headers
  if(ARG_CUDA)
    set_property(SOURCE ${ARG_CUDA} APPEND PROPERTY COMPILE_OPTIONS ${folders})
  endif()
endfunction()

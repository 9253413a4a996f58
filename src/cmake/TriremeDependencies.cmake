# Everything that Trireme links and does not write, as imported targets. The build reads this file
# and so does the installed TriremeConfig.cmake: each looks the packages up on the machine where it
# runs, so no path of a build machine is carried along. A missing package is an error that names it.
find_package(PkgConfig REQUIRED)
# MPI is MPICH, whose process manager and timers the program knows; it is found as pkg-config has it.
pkg_check_modules(MPICH QUIET IMPORTED_TARGET mpich)
if(NOT MPICH_FOUND)
  find_program(TRIREME_OTHER_MPIEXEC mpiexec)
  mark_as_advanced(TRIREME_OTHER_MPIEXEC)
  set(_trireme_found "there is no mpiexec in the PATH either")
  if(TRIREME_OTHER_MPIEXEC)
    execute_process(COMMAND ${TRIREME_OTHER_MPIEXEC} --version TIMEOUT 20
                    OUTPUT_VARIABLE _trireme_version ERROR_QUIET)
    string(REGEX MATCH "[^\n]*[^ \t\n][^\n]*" _trireme_version "${_trireme_version}")
    string(STRIP "${_trireme_version}" _trireme_version)
    set(_trireme_found "${TRIREME_OTHER_MPIEXEC} calls itself '${_trireme_version}'")
  endif()
  message(FATAL_ERROR
    "MPI: Trireme needs MPICH 4.0 or later, and pkg-config knows no module mpich; ${_trireme_found}. "
    "Load MPICH's module, install it (Debian: libmpich-dev), or name the folder of its mpich.pc in "
    "PKG_CONFIG_PATH.")
endif()
if(NOT Trireme_FIND_QUIETLY)
  message(STATUS "MPI: MPICH ${MPICH_VERSION} in ${MPICH_PREFIX}")
endif()
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost REQUIRED COMPONENTS program_options)
# Debian installs HDF5 once for each MPI; elsewhere there is one.
pkg_search_module(HDF5 REQUIRED IMPORTED_TARGET hdf5-mpich hdf5)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(TURBOJPEG REQUIRED IMPORTED_TARGET libturbojpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng>=1.6)
pkg_check_modules(ARCHIVE REQUIRED IMPORTED_TARGET libarchive)
# The static library, where there is one: only what reads tar is linked. The shared one loads libxml2
# and its 33 MB of Unicode tables into every rank, for formats that are not read.
set(_trireme_archive "")
foreach(part libarchive.a bz2 lzma zstd z)
  find_library(TRIREME_LIBRARY_${part} ${part} HINTS ${ARCHIVE_LIBRARY_DIRS})
  mark_as_advanced(TRIREME_LIBRARY_${part})
  list(APPEND _trireme_archive ${TRIREME_LIBRARY_${part}})
endforeach()
if(NOT "${_trireme_archive}" MATCHES "NOTFOUND")
  set_target_properties(PkgConfig::ARCHIVE PROPERTIES INTERFACE_LINK_LIBRARIES "${_trireme_archive}")
endif()
pkg_check_modules(ZLIB REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(ZSTD REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(LZ4 REQUIRED IMPORTED_TARGET liblz4)
find_package(Snappy REQUIRED CONFIG)
pkg_check_modules(SIMDJSON REQUIRED IMPORTED_TARGET simdjson>=3.0)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8>=10.32)
pkg_check_modules(UTF8PROC REQUIRED IMPORTED_TARGET libutf8proc)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(YAMLCPP REQUIRED IMPORTED_TARGET yaml-cpp>=0.7)
pkg_check_modules(HWLOC REQUIRED IMPORTED_TARGET hwloc)
find_package(dnnl REQUIRED CONFIG)

if(TRIREME_OPENMP)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
elseif(NOT TARGET OpenMP::OpenMP_CXX)
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)  # layers link it in either case
endif()

# The runtime alone, as a static library; the rest of CUDA is opened where it is used.
if(TRIREME_HAVE_CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()

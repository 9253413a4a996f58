# Everything that Trireme links and does not write, as imported targets. The build reads this file
# and so does the installed TriremeConfig.cmake: each looks the packages up on the machine where it
# runs, so no path of a build machine is carried along. A missing package is an error that names it.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(ZLIB REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Boost REQUIRED COMPONENTS program_options)
pkg_check_modules(MPICH REQUIRED IMPORTED_TARGET mpich)
# Debian installs HDF5 once for each MPI; elsewhere there is one.
pkg_search_module(HDF5 REQUIRED IMPORTED_TARGET hdf5-mpich hdf5)
pkg_check_modules(SENTENCEPIECE REQUIRED IMPORTED_TARGET sentencepiece)
pkg_check_modules(TURBOJPEG REQUIRED IMPORTED_TARGET libturbojpeg)
pkg_check_modules(PNG REQUIRED IMPORTED_TARGET libpng>=1.6)
pkg_check_modules(LZMA REQUIRED IMPORTED_TARGET liblzma)
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

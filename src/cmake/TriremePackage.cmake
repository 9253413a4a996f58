# cmake --build build/release --target package: a DEB and a relocatable archive of the program
# (modules/README.md). Included last: it reads what is installed.
set(CPACK_PACKAGE_NAME trireme)
set(CPACK_PACKAGE_VENDOR "The Trireme authors")
set(CPACK_PACKAGE_CONTACT "The Trireme authors <trireme@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(archive_name trireme-${PROJECT_VERSION}-linux-x86_64)  # CPack changes its own
set(CPACK_PACKAGE_FILE_NAME ${archive_name})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/TriremeCPack.cmake)
# What a user of the program needs; the libraries and headers are for who builds from source.
set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};${PROJECT_NAME};Runtime;/")

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS mpich)  # mpiexec; under Slurm srun does
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
    "Data, pipeline and tensor parallelism over MPI, from HDF5 datasets, with
 checkpoints that every process grid can continue.")

# The archive's bin/ programs.
add_executable(trireme_launcher modules/archive/launcher.cc)
target_link_options(trireme_launcher PRIVATE -static)
set_target_properties(trireme_launcher PROPERTIES
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/modules)

# Read by CPack for each of the two.
file(CONFIGURE OUTPUT TriremeCPack.cmake @ONLY CONTENT [[
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
else()
  set(CPACK_PRE_BUILD_SCRIPTS "@PROJECT_SOURCE_DIR@/modules/archive/assemble.cmake")
  set(TRIREME_LAUNCHER "@PROJECT_BINARY_DIR@/modules/trireme_launcher")
  set(TRIREME_MPIEXEC "@TRIREME_MPIEXEC@")
  set(TRIREME_MPI_LIBDIR "@MPICH_LIBDIR@")
  set(TRIREME_LINKED_ARCHIVE "@TRIREME_LIBRARY_libarchive.a@")
endif()
]])
include(CPack)

# cmake --build build/release --target package_cuda: what the archive lacks where a node has no CUDA
# libraries. Some 1 GB, so no part of `package`.
if(TRIREME_HAVE_CUDA)
  add_custom_target(package_cuda
    COMMAND ${CMAKE_COMMAND} "-DNAMES=${TRIREME_CUDA_LIBRARIES}" "-DFOLDERS=${TRIREME_CUDA_FOLDERS}"
            -D STAGE=${PROJECT_BINARY_DIR}/package_cuda/stage -D TOP=${archive_name}
            -D OUTPUT=${PROJECT_BINARY_DIR}/${archive_name}-cuda.tar.gz
            -P ${PROJECT_SOURCE_DIR}/modules/archive/cuda_libraries.cmake
    VERBATIM)
endif()

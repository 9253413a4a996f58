# Makes the relocatable archive of what CPack has staged: run by CPack before it packs.
# Carries along every library that a bare x86-64 Linux lacks; modules/README.md shows the layout.
include(${CMAKE_CURRENT_LIST_DIR}/place_library.cmake)
set(stage ${CPACK_TEMPORARY_INSTALL_DIRECTORY})
set(programs ${stage}/libexec/trireme)
set(libraries ${stage}/lib)
foreach(tool patchelf strip)
  find_program(${tool} ${tool})
  if(NOT ${tool})
    message(FATAL_ERROR "the relocatable archive needs ${tool} (Debian: ${tool} or binutils)")
  endif()
endforeach()
macro(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endmacro()

# The programs; what lies in bin/ starts them.
file(MAKE_DIRECTORY ${programs}/loader ${libraries}/glibc ${libraries}/ucx ${stage}/mpi)
file(RENAME ${stage}/bin/trireme ${programs}/trireme)
get_filename_component(hydra ${TRIREME_MPIEXEC} REALPATH)
get_filename_component(hydra_folder ${hydra} DIRECTORY)
file(COPY_FILE ${hydra} ${programs}/mpiexec.hydra)
file(COPY_FILE ${hydra_folder}/hydra_pmi_proxy ${programs}/hydra_pmi_proxy)
file(COPY_FILE ${TRIREME_LAUNCHER} ${stage}/bin/trireme)
run(${strip} ${stage}/bin/trireme)
foreach(name trireme mpiexec hydra_pmi_proxy)
  if(NOT name STREQUAL trireme)
    file(CREATE_LINK trireme ${stage}/bin/${name} SYMBOLIC)
  endif()
  file(CREATE_LINK ../../../lib/glibc/ld-linux-x86-64.so.2 ${programs}/loader/${name} SYMBOLIC)
endforeach()

# UCX loads its transports by name, from the folder ucx beside itself.
file(GLOB transports ${TRIREME_MPI_LIBDIR}/ucx/libuct_*.so.0)
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${programs}/trireme ${programs}/mpiexec.hydra ${programs}/hydra_pmi_proxy
  LIBRARIES ${transports}
  RESOLVED_DEPENDENCIES_VAR needed
  UNRESOLVED_DEPENDENCIES_VAR missing)
if(missing)
  message(FATAL_ERROR "libraries that are not found: ${missing}")
endif()
foreach(library IN LISTS needed)
  place_library(${libraries} ${library})
  file(REAL_PATH ${library} file)
  list(APPEND origins ${library} ${file})
endforeach()
foreach(transport IN LISTS transports)
  get_filename_component(name ${transport} NAME)
  file(REAL_PATH ${transport} file)
  file(COPY_FILE ${file} ${libraries}/ucx/${name})
  if(EXISTS ${libraries}/${name})  # another needs it too: two copies would both be loaded
    file(REMOVE ${libraries}/${name})
    file(CREATE_LINK ucx/${name} ${libraries}/${name} SYMBOLIC)
  endif()
  string(REGEX REPLACE "\\.0$" "" link ${name})
  file(CREATE_LINK ${name} ${libraries}/ucx/${link} SYMBOLIC)
endforeach()
file(CHMOD ${libraries}/glibc/ld-linux-x86-64.so.2
     PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)

# MPI under the name of the ABI that MPICH, Intel MPI and Cray MPICH share, so that one of these can
# take its place.
file(RENAME ${libraries}/libmpich.so.12 ${libraries}/libmpi.so.12)
run(${patchelf} --set-soname libmpi.so.12 ${libraries}/libmpi.so.12)
run(${patchelf} --replace-needed libmpich.so.12 libmpi.so.12 ${libraries}/libhdf5_mpich.so.103)
run(${patchelf} --replace-needed libmpich.so.12 libmpi.so.12 ${programs}/trireme)
foreach(program trireme mpiexec.hydra hydra_pmi_proxy)
  # DT_RPATH and not DT_RUNPATH: it holds for what our libraries need too, and before what a user
  # has put into LD_LIBRARY_PATH.
  run(${patchelf} --force-rpath --set-rpath "$ORIGIN/../../mpi:$ORIGIN/../../lib" ${programs}/${program})
endforeach()
file(WRITE ${stage}/mpi/README
  "A libmpi.so.12 in this folder (or a link to it) is used instead of the archive's own.\n")

# The licences of what is carried along, or linked in.
execute_process(COMMAND dpkg-query -S ${origins} ${TRIREME_LINKED_ARCHIVE} OUTPUT_VARIABLE owners ERROR_QUIET)
string(REGEX MATCHALL "[^\n:]+:[^\n]*" owners "${owners}")
foreach(owner IN LISTS owners)
  string(REGEX REPLACE ":.*" "" package "${owner}")
  if(EXISTS /usr/share/doc/${package}/copyright)
    file(REAL_PATH /usr/share/doc/${package}/copyright file)
    file(MAKE_DIRECTORY ${stage}/share/doc/trireme/licenses)
    file(COPY_FILE ${file} ${stage}/share/doc/trireme/licenses/${package} ONLY_IF_DIFFERENT)
  endif()
endforeach()

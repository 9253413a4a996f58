# Adds programs of the build's folder tests/ to an unpacked relocatable archive: they start from its
# bin/ as trireme does, with its libraries. Run by jobs/first_gpu.sh bundle:
#     cmake -D STAGE=ARCHIVE -D BUILD=BUILD_FOLDER "-DPROGRAMS=NAME;..." -P add_programs.cmake
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/place_library.cmake)
set(programs ${STAGE}/libexec/trireme)
set(libraries ${STAGE}/lib)
foreach(tool patchelf strip)
  find_program(${tool} ${tool} REQUIRED)
endforeach()
macro(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endmacro()

list(TRANSFORM PROGRAMS PREPEND ${BUILD}/tests/ OUTPUT_VARIABLE files)
file(GET_RUNTIME_DEPENDENCIES EXECUTABLES ${files}
  RESOLVED_DEPENDENCIES_VAR needed UNRESOLVED_DEPENDENCIES_VAR missing)
if(missing)
  message(FATAL_ERROR "libraries that are not found: ${missing}")
endif()
foreach(library IN LISTS needed)
  get_filename_component(name ${library} NAME)
  if(name STREQUAL "libmpich.so.12")  # there under the name of its ABI
    set(name libmpi.so.12)
  endif()
  if(NOT EXISTS ${libraries}/${name} AND NOT EXISTS ${libraries}/glibc/${name})
    place_library(${libraries} ${library})
  endif()
endforeach()
foreach(name IN LISTS PROGRAMS)
  file(COPY_FILE ${BUILD}/tests/${name} ${programs}/${name})
  run(${strip} ${programs}/${name})
  run(${patchelf} --replace-needed libmpich.so.12 libmpi.so.12 ${programs}/${name})
  run(${patchelf} --force-rpath --set-rpath "$ORIGIN/../../mpi:$ORIGIN/../../lib" ${programs}/${name})
  file(CREATE_LINK ../../../lib/glibc/ld-linux-x86-64.so.2 ${programs}/loader/${name} SYMBOLIC)
  # Not a symbolic link: a script that resolves it would lose the name.
  file(CREATE_LINK ${STAGE}/bin/trireme ${STAGE}/bin/${name})
endforeach()

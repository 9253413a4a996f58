# What most files include is parsed once for all targets of one level of optimisation. The thread
# sanitizer's build does without, so that most files that forget an include of their own fail there.
set(_trireme_precompiled <algorithm> <array> <atomic> <cmath> <cstdint> <filesystem> <fstream>
    <functional> <map> <memory> <mutex> <numeric> <optional> <span> <sstream> <string> <string_view>
    <thread> <tuple> <unordered_map> <utility> <variant> <vector> <fmt/format.h>)

# Compiles a target with precompiled headers, and in batches if TRIREME_UNITY is set. COLD: its code
# touches no element of a tensor; it is compiled with -O1 in a release, which takes two thirds of the
# time, and with -O0 under a sanitizer, which takes half of that. APART: not in batches. TEST: an
# executable, compiled as cold code is, but not in batches; GoogleTest is among the headers.
function(trireme_compile_quickly target)
  cmake_parse_arguments(ARG "COLD;APART;TEST" "" "" ${ARGN})
  set(level "")
  set(owner trireme_precompiled)
  if(ARG_COLD OR ARG_TEST)
    set(level $<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>)
    set(owner trireme_precompiled_cold)
  endif()
  if(TRIREME_SANITIZE AND (ARG_COLD OR ARG_TEST))
    set(level $<$<COMPILE_LANGUAGE:CXX>:-O0>)
    # A quarter of the time of a compilation. Hot code, which reads tensors and files as vectors, keeps it.
    if(TRIREME_SANITIZE MATCHES undefined)
      list(APPEND level $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=alignment>)
    endif()
  endif()
  target_compile_options(${target} PRIVATE ${level})
  if(TRIREME_UNITY AND NOT ARG_APART AND NOT ARG_TEST)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${TRIREME_UNITY})
    # Files have types in anonymous namespaces, which GCC takes for a mistake in a header.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
  if(NOT TRIREME_PRECOMPILED_HEADERS OR TRIREME_SANITIZE MATCHES thread)
    return()
  endif()
  # ccache asks for it.
  set(for_ccache $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess>)
  set(used $<NOT:$<BOOL:$<TARGET_PROPERTY:DISABLE_PRECOMPILE_HEADERS>>>)
  target_compile_options(${target} PRIVATE $<${used}:${for_ccache}>)
  if(ARG_TEST)
    set(owner trireme_precompiled_tests)
  endif()
  if(NOT TARGET ${owner})  # of no layer, whose macros the others would have to share
    set(headers ${_trireme_precompiled})
    if(ARG_TEST)  # an executable, whose code is addressed in another way than a library's
      file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled_tests.cc CONTENT "int main() {}\n")
      add_executable(${owner} ${CMAKE_BINARY_DIR}/precompiled_tests.cc)
      target_link_libraries(${owner} PRIVATE GTest::gtest)
      list(APPEND headers <gtest/gtest.h>)
    else()
      file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cc CONTENT "")  # a target needs a source
      add_library(${owner} OBJECT ${CMAKE_BINARY_DIR}/precompiled.cc)
    endif()
    target_link_libraries(${owner} PRIVATE fmt::fmt)
    target_compile_options(${owner} PRIVATE ${level} ${for_ccache})
    target_precompile_headers(${owner} PRIVATE ${headers})
  endif()
  target_precompile_headers(${target} REUSE_FROM ${owner})
endfunction()

# trireme_library(AREA [COLD] [APART] SOURCES file... [HOT file...] [PUBLIC target...] [PRIVATE target...])
# Declares the library trireme_AREA, known to others as Trireme::AREA. COLD, APART: see
# trireme_compile_quickly. HOT: those sources of a cold one whose loops touch every element; a release
# compiles them with -O3 even so.
function(trireme_library area)
  cmake_parse_arguments(ARG "COLD;APART" "" "SOURCES;HOT;PUBLIC;PRIVATE" ${ARGN})
  add_library(trireme_${area} STATIC ${ARG_SOURCES})
  set(how "")
  foreach(word IN ITEMS COLD APART)
    if(ARG_${word})
      list(APPEND how ${word})
    endif()
  endforeach()
  if(ARG_HOT)
    add_library(trireme_${area}_hot OBJECT ${ARG_HOT})
    target_include_directories(trireme_${area}_hot PRIVATE $<TARGET_PROPERTY:trireme_${area},INCLUDE_DIRECTORIES>)
    target_link_libraries(trireme_${area}_hot PRIVATE ${ARG_PUBLIC} ${ARG_PRIVATE})
    trireme_compile_quickly(trireme_${area}_hot)
    target_sources(trireme_${area} PRIVATE $<TARGET_OBJECTS:trireme_${area}_hot>)
  endif()
  add_library(Trireme::${area} ALIAS trireme_${area})
  set_target_properties(trireme_${area} PROPERTIES EXPORT_NAME ${area})
  target_include_directories(trireme_${area} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(trireme_${area} PUBLIC cxx_std_20)
  target_link_libraries(trireme_${area} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  trireme_compile_quickly(trireme_${area} ${how})
  set_property(GLOBAL APPEND PROPERTY TRIREME_LIBRARIES trireme_${area})
endfunction()

# The launcher of the MPI that we link, also where another MPI owns the plain name.
find_program(TRIREME_MPIEXEC NAMES mpiexec.mpich mpiexec.hydra mpiexec REQUIRED)

# Gives a CTest case its label and timeout; a case that ends with 77 counts as skipped.
function(_trireme_test_properties name label timeout)
  if(NOT TARGET tests_${label})
    add_custom_target(tests_${label})
  endif()
  if(TRIREME_FULL_TESTS)
    math(EXPR timeout "5 * ${timeout}")
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77 ${ARGN})
endfunction()

# trireme_test(NAME LABEL label TIMEOUT seconds SOURCES file... [LINK target...] [RANKS n...] [ARGS arg...])
# One executable; one CTest case per entry of RANKS, each started by mpiexec (none: started alone).
# The target tests_LABEL builds all executables of a label. The linker is gold where it is there, which
# takes less than half of the time: there are two hundred of them.
find_program(TRIREME_GOLD ld.gold)
mark_as_advanced(TRIREME_GOLD)
function(trireme_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINK;RANKS;ARGS" ${ARGN})
  if(NOT ARG_LABEL OR NOT ARG_TIMEOUT)
    message(FATAL_ERROR "trireme_test(${name}): LABEL and TIMEOUT are required")
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest fmt::fmt)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  trireme_compile_quickly(${name} TEST)
  if(TRIREME_GOLD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    target_link_options(${name} PRIVATE -fuse-ld=gold)
  endif()
  if(ARG_RANKS)
    foreach(ranks IN LISTS ARG_RANKS)
      set(processors 2)
      if(ranks EQUAL 1)
        set(processors 1)
      endif()
      add_test(NAME ${name}_${ranks}
               COMMAND ${TRIREME_MPIEXEC} -n ${ranks} $<TARGET_FILE:${name}> ${ARG_ARGS})
      _trireme_test_properties(${name}_${ranks} ${ARG_LABEL} ${ARG_TIMEOUT}
        PROCESSORS ${processors} ENVIRONMENT OMP_NUM_THREADS=1)
    endforeach()
  else()
    add_test(NAME ${name} COMMAND ${name} ${ARG_ARGS})
    _trireme_test_properties(${name} ${ARG_LABEL} ${ARG_TIMEOUT})
  endif()
  add_dependencies(tests_${ARG_LABEL} ${name})
endfunction()

# trireme_threads_tests(PROGRAMS target... TESTS name...)
# These tests run our own threads: they get the label threads besides their own, the target
# tests_threads builds their programs, and they are fit for the thread sanitizer.
function(trireme_threads_tests)
  cmake_parse_arguments(ARG "" "" "PROGRAMS;TESTS" ${ARGN})
  if(NOT TARGET tests_threads)
    add_custom_target(tests_threads)
  endif()
  add_dependencies(tests_threads ${ARG_PROGRAMS})
  set_property(TEST ${ARG_TESTS} APPEND PROPERTY LABELS threads)
  if(TRIREME_SANITIZE MATCHES thread)
    # UCX's hooks into memory mapping run after the sanitizer has left a thread. A finding ends the
    # program: by default it goes on, and one that is killed later would not tell.
    set_property(TEST ${ARG_TESTS} APPEND PROPERTY ENVIRONMENT
      UCX_MEM_MMAP_HOOK_MODE=none TSAN_OPTIONS=halt_on_error=1)
  endif()
endfunction()

# trireme_quick_tests(NAME...)
# The tests that tell most in little time: they get the label quick besides their own, and the target
# tests_quick builds their programs.
function(trireme_quick_tests)
  if(NOT TARGET tests_quick)
    add_custom_target(tests_quick)
  endif()
  foreach(test IN LISTS ARGN)
    string(REGEX REPLACE "_[0-9]+$" "" program ${test})  # without its number of ranks
    if(TARGET ${program})
      add_dependencies(tests_quick ${program})
    endif()
  endforeach()
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS quick)
endfunction()

# trireme_not_sanitized(NAME... [CASE pattern])
# A sanitizer's build does without these tests, or without those cases of theirs. These are scripts, comparisons with
# other programs, other people's readers of our files, and another library's products, which run no code of ours that
# the other tests leave out; and repetitions that are long there: operations by other instruction sets and in other
# orders, types that share their templates with others, and a few cases that run the code of others at another scale.
function(trireme_not_sanitized)
  cmake_parse_arguments(ARG "" "CASE" "" ${ARGN})
  if(TRIREME_SANITIZE AND ARG_CASE)
    set_property(TEST ${ARG_UNPARSED_ARGUMENTS} APPEND PROPERTY ENVIRONMENT GTEST_FILTER=-${ARG_CASE})
  elseif(TRIREME_SANITIZE)
    set_property(TEST ${ARG_UNPARSED_ARGUMENTS} PROPERTY LABELS)  # none of its own, not even quick
  endif()
endfunction()

# trireme_script_test(NAME LABEL label TIMEOUT seconds COMMAND program arg...)
# A test that is a script.
function(trireme_script_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "COMMAND" ${ARGN})
  if(NOT ARG_LABEL OR NOT ARG_TIMEOUT)
    message(FATAL_ERROR "trireme_script_test(${name}): LABEL and TIMEOUT are required")
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  _trireme_test_properties(${name} ${ARG_LABEL} ${ARG_TIMEOUT})
endfunction()

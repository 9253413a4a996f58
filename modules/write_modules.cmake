# Fills in the templates beside this file, into the working folder. modules/CMakeLists.txt says with
# which variables.
execute_process(COMMAND ${PROGRAM} version OUTPUT_VARIABLE said COMMAND_ERROR_IS_FATAL ANY)

# What was built, not the processor that this is: a paragraph of its own.
string(REGEX REPLACE "\n\non this processor.*" "" said "${said}")
string(REPLACE ";" "," said "${said}")  # which separates the items of a list, as of these lines
string(REGEX MATCHALL "\n[A-Za-z]+  +[^\n]*" lines "${said}")

set(TCL_FACTS "module-whatis \"Name: Trireme\"
module-whatis \"Version: ${PROJECT_VERSION}\"
module-whatis \"Description: ${PROJECT_DESCRIPTION}\"")
set(HELP "Trireme ${PROJECT_VERSION}: ${PROJECT_DESCRIPTION}.

  trireme COMMAND --help   every option, with its default and unit
  man trireme              the same as a page
  trireme version          what it was built with, and what it uses on this processor

Start it with srun, or with the mpiexec of the MPI that is named below.
")
foreach(line IN LISTS lines)
  string(REGEX MATCH "^\n([A-Za-z]+)  +(.*)$" unused "${line}")
  set(fact "${CMAKE_MATCH_1}: ${CMAKE_MATCH_2}")
  string(REGEX REPLACE "[][{}\"$\\]" "" fact "${fact}")  # these mean something to Tcl or Lua
  string(APPEND TCL_FACTS "\nmodule-whatis \"${fact}\"")
  string(APPEND HELP "\n  ${fact}")
endforeach()
string(REGEX REPLACE "module-whatis (\"[^\n]*\")" "whatis(\\1)" LUA_FACTS "${TCL_FACTS}")

string(REGEX MATCHALL "\\.\\." levels ${TO_PREFIX})
list(LENGTH levels LEVELS_TO_PREFIX)
configure_file(${CMAKE_CURRENT_LIST_DIR}/trireme.tcl.in ${PROJECT_VERSION} @ONLY NEWLINE_STYLE UNIX)
configure_file(${CMAKE_CURRENT_LIST_DIR}/trireme.lua.in ${PROJECT_VERSION}.lua @ONLY NEWLINE_STYLE UNIX)

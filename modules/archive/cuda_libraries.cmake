# Collects the libraries of CUDA that the program opens when it computes on a GPU, with what they
# need, for the relocatable archive on nodes that lack them.
#
#   cmake -D NAMES="libcudart.so.13;..." -D FOLDERS="/usr/local/cuda/lib64;..." -D STAGE=FOLDER
#         [-D OUTPUT=FILE.tar.gz -D TOP=NAME] -P cuda_libraries.cmake
#
# Puts them below STAGE/lib; packs STAGE as OUTPUT, below the folder TOP. NAMES may hold patterns.
include(${CMAKE_CURRENT_LIST_DIR}/place_library.cmake)
set(found)
foreach(name IN LISTS NAMES)
  set(here)
  foreach(folder IN LISTS FOLDERS)
    if(NOT here)
      file(GLOB here ${folder}/${name})
    endif()
  endforeach()
  if(NOT here)
    message(FATAL_ERROR "there is no ${name} in ${FOLDERS}")
  endif()
  list(APPEND found ${here})
endforeach()
# The driver, libcuda.so.1, is the node's and no part of this.
file(GET_RUNTIME_DEPENDENCIES LIBRARIES ${found} RESOLVED_DEPENDENCIES_VAR needed
  UNRESOLVED_DEPENDENCIES_VAR missing POST_EXCLUDE_REGEXES "libcuda\\.so")
if(missing)
  message(FATAL_ERROR "libraries that are not found: ${missing}")
endif()
foreach(library IN LISTS found needed)
  place_library(${STAGE}/lib ${library})
endforeach()
if(OUTPUT)
  cmake_path(GET STAGE PARENT_PATH above)
  file(RENAME ${STAGE} ${above}/${TOP})
  execute_process(COMMAND ${CMAKE_COMMAND} -E tar czf ${OUTPUT} ${TOP} WORKING_DIRECTORY ${above}
                  COMMAND_ERROR_IS_FATAL ANY)
  file(REMOVE_RECURSE ${above}/${TOP})
  message(STATUS "${OUTPUT}")
endif()

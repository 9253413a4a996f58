# Writes the commit of a source tree into a header, if it is not there already; runs at each build.
#   cmake -DSOURCE=FOLDER -DHEADER=FILE -P write_commit.cmake
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --exclude * --abbrev=12
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
if(failed)
  set(commit "")  # an archive of the sources
endif()
set(text "#define TRIREME_COMMIT \"${commit}\"\n")
if(EXISTS ${HEADER})
  file(READ ${HEADER} before)
endif()
if(NOT text STREQUAL "${before}")
  file(WRITE ${HEADER} "${text}")
endif()

# place_library(LIBRARIES PATH): copies a shared library into the archive's folder of libraries, under
# the name that it is looked up by; those of the C library into the folder glibc below it.
function(place_library libraries path)
  get_filename_component(name ${path} NAME)
  file(REAL_PATH ${path} file)
  if(name MATCHES "^(ld-linux-x86-64|lib(c|m|mvec|dl|rt|pthread|resolv|util|anl))\\.so")
    set(libraries ${libraries}/glibc)
  endif()
  file(MAKE_DIRECTORY ${libraries})
  file(COPY_FILE ${file} ${libraries}/${name})
endfunction()

# Sets `result` to the compute capabilities of the GPUs that this machine's driver shows, as in
# 80;90a: those that the kernels can be compiled for, Ampere's and later ones. Without any it is 90a,
# Hopper's. `why` is set to words that say which of the two it is.
function(trireme_architectures_here result why)
  set(found "")
  find_program(TRIREME_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(TRIREME_NVIDIA_SMI)
  if(TRIREME_NVIDIA_SMI)
    execute_process(COMMAND ${TRIREME_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
                    TIMEOUT 20 OUTPUT_VARIABLE shown RESULT_VARIABLE status ERROR_QUIET)
    if(status EQUAL 0)
      string(REGEX MATCHALL "[0-9]+\\.[0-9]+" found "${shown}")
    endif()
  endif()
  list(TRANSFORM found REPLACE "\\." "")
  list(REMOVE_DUPLICATES found)
  list(FILTER found EXCLUDE REGEX "^[1-7][0-9]$")
  list(TRANSFORM found REPLACE "^90$" "90a")  # Hopper's kernels use what only 90a has
  list(SORT found COMPARE NATURAL)
  if(found)
    set(${why} "the GPUs of this machine" PARENT_SCOPE)
  else()
    set(found 90a)
    set(${why} "as the driver shows no GPU of compute capability 8.0 or later here" PARENT_SCOPE)
  endif()
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

# SPDX-License-Identifier: MIT
# Sets `name` to the MPI of mpi.h in `include` (as LAMMPS calls it) and `soname` to what a program linked with `library` asks for.
#
# The library may be a linker's script that names another, so a probe is linked and read.
function(read_mpi_name name soname include library)
  file(STRINGS ${include}/mpi.h open_mpi REGEX "define +OPEN_MPI ")
  if(open_mpi)
    set(${name} "Open MPI" PARENT_SCOPE)
  else()
    set(${name} "MPICH" PARENT_SCOPE)  # and what shares its ABI
  endif()
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/mpi_probe.so)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -shared -nostdlib -Wl,--no-as-needed ${library} -o ${probe}
                  RESULT_VARIABLE code ERROR_VARIABLE text)
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${probe} OUTPUT_VARIABLE headers)
  if(NOT code EQUAL 0 OR NOT headers MATCHES "NEEDED +(lib[^\n]*mpi[^\n ]*)")
    message(FATAL_ERROR "MPI: expected a shared library that a program can be linked with, found ${library}; name another "
                        "with -DTESSERA_MPI_ROOT=\n${text}")
  endif()
  set(${soname} ${CMAKE_MATCH_1} PARENT_SCOPE)
endfunction()

# SPDX-License-Identifier: MIT
# Refuses a compiler that puts its C++ library into what it links, or leaves it out.
#
# torch brings the shared one into the process; a second copy beside it shares some of its symbols and not others, so that streams
# of one meet locales of the other: the first artifact that is loaded then crashes.
function(require_shared_cxx_library)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/cxx_library_probe.cpp)
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/cxx_library_probe.so)
  file(WRITE ${source} "#include <sstream>\n#include <string>\nstd::string tessera_probe(unsigned long number) {\n"
                       "  std::ostringstream text;\n  text << number;\n  return text.str();\n}\n")
  separate_arguments(flags UNIX_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS}")
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -shared -fPIC ${flags} ${source} -o ${probe}
                  RESULT_VARIABLE code ERROR_VARIABLE text)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "C++ compiler: expected one that links a shared library, found that ${CMAKE_CXX_COMPILER} does not; "
                        "set CXX to another\n${text}")
  endif()
  execute_process(COMMAND ${CMAKE_OBJDUMP} -p ${probe} OUTPUT_VARIABLE headers RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "C++ compiler: expected objdump to read what it links, found none at '${CMAKE_OBJDUMP}'; install "
                        "binutils, or configure with -DCMAKE_OBJDUMP=")
  endif()
  if(NOT headers MATCHES "NEEDED +libstdc\\+\\+\\.so")
    message(FATAL_ERROR "C++ compiler: expected one whose libraries ask for the shared C++ library (libstdc++.so), as torch's "
                        "do, found that those of ${CMAKE_CXX_COMPILER} ask for none: they would crash beside torch. Set CXX "
                        "to another compiler (CXX=/usr/bin/g++), or take -static-libstdc++ and -nostdlib++ out of its flags")
  endif()
endfunction()

# The objects of the library, compiled once for both its forms (hence position independent), except
#   src/ops              that hold kernels: twice, for float and for double (see src/ops/common/real.h)
#   src/device/cpu/simd  once per instruction set; the set is chosen at run time
# Nothing is compiled for the machine that builds: the result runs on any of its kind.

set(MEG_WARNINGS -Wall -Wextra -Wconversion -Wshadow -Werror=implicit-function-declaration)
set(MEG_OBJECTS "") # targets; joined at the end into what $<TARGET_OBJECTS:...> can take

# Adds the object library `name` of the given sources; options follow the word OPTIONS.
function(meg_objects name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;OPTIONS")
  add_library(${name} OBJECT ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include
                                             ${PROJECT_SOURCE_DIR}/src)
  # Without semantic interposition gcc may inline across functions although the code is PIC; without
  # math errno, which nobody reads, it may vectorise square roots.
  target_compile_options(${name} PRIVATE ${MEG_WARNINGS} -fno-semantic-interposition
                                         -fno-math-errno ${arg_OPTIONS})
  target_link_libraries(${name} PRIVATE OneDNN::OneDNN Hwloc::Hwloc ZLIB::ZLIB OpenMP::OpenMP_C
                                        Threads::Threads)
  set(MEG_OBJECTS ${MEG_OBJECTS} ${name} PARENT_SCOPE)
endfunction()

set(folders base machine graph ops device comm data import zoo plan exec train)
list(TRANSFORM folders PREPEND src/)
list(TRANSFORM folders APPEND /*.c)
file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${folders})
list(FILTER sources EXCLUDE REGEX "src/device/cpu/simd/")
list(FILTER sources EXCLUDE REGEX "src/comm/mpi\\.c$") # a plug-in for each MPI: see Mpi.cmake
file(RELATIVE_PATH plugins ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR}/megalith)
set_source_files_properties(src/comm/open.c PROPERTIES COMPILE_DEFINITIONS
  "MEG_PLUGIN_DIR=\"${CMAKE_INSTALL_FULL_LIBDIR}/megalith\";MEG_PLUGIN_FROM_BIN=\"/${plugins}\"")
meg_objects(objects SOURCES ${sources})

file(GLOB_RECURSE ops CONFIGURE_DEPENDS src/ops/*.c)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ops}) # their text decides
set(kernels "")
foreach(file ${ops})
  file(STRINGS ${file} found REGEX "MEG_KERNELS|MEG_F64" LIMIT_COUNT 1)
  if(found)
    list(APPEND kernels ${file})
  endif()
endforeach()
# Defined as itself: the name is a data type, too.
meg_objects(objects_f64 SOURCES ${kernels} OPTIONS -DMEG_F64=MEG_F64)

file(GLOB_RECURSE simd CONFIGURE_DEPENDS src/device/cpu/simd/*.c)
set(MEG_ISAS portable)
set(portable_options -DMEG_BLOCK=8)
set(avx2_options -DMEG_BLOCK=8 -mavx2 -mfma)
set(avx512_options -DMEG_BLOCK=16 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
  list(APPEND MEG_ISAS avx2 avx512)
endif()
foreach(isa ${MEG_ISAS})
  meg_objects(objects_${isa} SOURCES ${simd}
              OPTIONS ${${isa}_options} -DMEG_ISA=${isa} $<$<NOT:$<CONFIG:Debug>>:-O3>)
endforeach()

list(JOIN MEG_OBJECTS ">;$<TARGET_OBJECTS:" MEG_OBJECTS)

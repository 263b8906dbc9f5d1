# One plug-in per MPI that is found: libmegalith_mpi_openmpi.so, libmegalith_mpi_mpich.so, from the
# same file. The library itself links no MPI and loads the one that the launcher needs (see
# src/comm/open.c). Found by the compiler wrappers, whose `-show` tells what they would add; which
# MPI it is, its mpi.h says.
set(MEG_MPIS "") # for the report and the tests: "openmpi 4.1.4;mpich 4.0.2"

# Sets <out> to all words of the wrapper's command that begin with <prefix>, without it.
function(meg_wrapper_words out prefix command)
  string(REGEX MATCHALL "(^| )${prefix}[^ ]+" words "${command}")
  list(TRANSFORM words REPLACE "^ ?${prefix}" "")
  set(${out} "${words}" PARENT_SCOPE)
endfunction()

# Sets <out> to "openmpi 4.1.4", "mpich 4.0.2", or "" for another library.
function(meg_mpi_version out header)
  file(STRINGS ${header} lines REGEX "#define +(OMPI_(MAJOR|MINOR|RELEASE)_VERSION|MPICH_VERSION) ")
  set(name "")
  if(lines MATCHES "MPICH_VERSION +\"([^\"]+)\"")
    set(name "mpich ${CMAKE_MATCH_1}")
  elseif(lines MATCHES "OMPI_MAJOR_VERSION +([0-9]+).*MINOR_VERSION +([0-9]+).*RELEASE_VERSION +([0-9]+)")
    set(name "openmpi ${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
  endif()
  set(${out} "${name}" PARENT_SCOPE)
endfunction()

function(meg_mpi_plugin name folders libraries library_folders)
  set(target megalith_mpi_${name})
  # With its own copy of the little that it needs from the library: programs that have the archive
  # inside do not show their symbols to plug-ins.
  add_library(${target} MODULE src/comm/mpi.c src/comm/waker.c src/comm/number.c src/base/clock.c
                               src/base/status.c src/base/pool.c)
  target_include_directories(${target} PRIVATE include src)
  target_include_directories(${target} SYSTEM PRIVATE ${folders})
  target_compile_options(${target} PRIVATE ${MEG_WARNINGS} -fvisibility=hidden)
  target_link_directories(${target} PRIVATE ${library_folders})
  target_link_libraries(${target} PRIVATE ${libraries} Threads::Threads)
  set_target_properties(${target} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  add_dependencies(megalith_static ${target}) # what is built of it finds its plug-ins
  install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/megalith)
endfunction()

foreach(wrapper mpicc.openmpi mpicc.mpich mpicc)
  find_program(MEG_WRAPPER_${wrapper} ${wrapper})
  mark_as_advanced(MEG_WRAPPER_${wrapper})
  if(NOT MEG_WRAPPER_${wrapper})
    continue()
  endif()
  execute_process(COMMAND ${MEG_WRAPPER_${wrapper}} -show OUTPUT_VARIABLE command ERROR_QUIET
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  meg_wrapper_words(folders -I "${command}")
  meg_wrapper_words(libraries -l "${command}")
  meg_wrapper_words(library_folders -L "${command}")
  unset(header)
  find_file(header mpi.h PATHS ${folders} NO_CACHE NO_DEFAULT_PATH)
  if(NOT header)
    continue()
  endif()
  meg_mpi_version(version ${header})
  string(REGEX REPLACE " .*" "" name "${version}")
  if(NOT name OR TARGET megalith_mpi_${name})
    continue()
  endif()
  meg_mpi_plugin(${name} "${folders}" "${libraries}" "${library_folders}")
  list(APPEND MEG_MPIS "${version}")
endforeach()

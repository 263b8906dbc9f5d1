# What is installed: header, both libraries, command, and the two ways to find them
# (`pkg-config megalith`, `find_package(megalith)` for the target megalith::megalith).
include(CMakePackageConfigHelpers)

# The shared library shows what the header declares, nothing else: its ABI is megalith.h.
set(header ${PROJECT_SOURCE_DIR}/include/megalith.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
file(STRINGS ${header} declarations REGEX "^[a-z].*meg_[a-z_]+\\(")
list(TRANSFORM declarations REPLACE "^.*(meg_[a-z_]+)\\(.*$" "\\1")
list(JOIN declarations ";\n  " declarations)
set(exports ${PROJECT_BINARY_DIR}/megalith.map)
file(CONFIGURE OUTPUT ${exports} @ONLY CONTENT "MEGALITH_@PROJECT_VERSION_MAJOR@ {
global:
  @declarations@;
local:
  *;
};
")
target_link_options(megalith PRIVATE -Wl,--version-script=${exports} -Wl,--as-needed -Wl,-z,defs)
set_target_properties(megalith PROPERTIES VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR} LINK_DEPENDS ${exports} PUBLIC_HEADER ${header})

# Where oneDNN and its kin lie, if not where the system looks; a program that links the library finds
# it by the rpath of megalith.pc, or CMake's own.
set_target_properties(megalith megalith_command PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)

# In a wheel (pip install .) what the library needs lies beside it; those that are needed by these are found by an RPATH, which
# unlike a RUNPATH holds for them, too. MPI stays the machine's.
if(SKBUILD)
  target_link_options(megalith PRIVATE -Wl,--disable-new-dtags)
  target_link_options(megalith_command PRIVATE -Wl,--disable-new-dtags)
  set_target_properties(megalith PROPERTIES INSTALL_RPATH "$ORIGIN")
  set_target_properties(megalith_command PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  set(beside RUNTIME_DEPENDENCY_SET beside)
endif()

install(TARGETS megalith EXPORT megalithConfig ${beside})
install(TARGETS megalith_static)
install(TARGETS megalith_command ${beside})
if(SKBUILD)
  install(RUNTIME_DEPENDENCY_SET beside DESTINATION ${CMAKE_INSTALL_LIBDIR}
          PRE_INCLUDE_REGEXES "^lib(dnnl|hwloc|OpenCL|gomp|udev|z)\\." PRE_EXCLUDE_REGEXES ".*")
endif()

set(config ${CMAKE_INSTALL_LIBDIR}/cmake/megalith)
install(EXPORT megalithConfig NAMESPACE megalith:: DESTINATION ${config})
write_basic_package_version_file(megalithConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/megalithConfigVersion.cmake DESTINATION ${config})

# Relative to the .pc file itself, so that an installed tree may be moved.
file(RELATIVE_PATH pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
string(REGEX REPLACE "/$" "" pc_prefix ${pc_prefix})
configure_file(cmake/megalith.pc.in megalith.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/megalith.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

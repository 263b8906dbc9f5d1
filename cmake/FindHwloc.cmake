# Finds hwloc: Hwloc_FOUND, Hwloc_VERSION (of its interface), target Hwloc::Hwloc. It has a .pc file, but
# pkg-config may be missing.
find_path(Hwloc_INCLUDE_DIR hwloc.h)
find_library(Hwloc_LIBRARY hwloc)
mark_as_advanced(Hwloc_INCLUDE_DIR Hwloc_LIBRARY)

if(Hwloc_INCLUDE_DIR) # 0x00020800 is 2.8
  file(STRINGS ${Hwloc_INCLUDE_DIR}/hwloc.h line REGEX "#define HWLOC_API_VERSION 0x[0-9a-f]+")
  string(REGEX MATCH "0x([0-9a-f][0-9a-f][0-9a-f][0-9a-f])([0-9a-f][0-9a-f])" number "${line}")
  if(number)
    math(EXPR major "0x${CMAKE_MATCH_1}")
    math(EXPR minor "0x${CMAKE_MATCH_2}")
    set(Hwloc_VERSION ${major}.${minor})
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Hwloc REQUIRED_VARS Hwloc_LIBRARY Hwloc_INCLUDE_DIR VERSION_VAR Hwloc_VERSION
  REASON_FAILURE_MESSAGE "on Debian: apt-get install libhwloc-dev")

if(Hwloc_FOUND AND NOT TARGET Hwloc::Hwloc)
  add_library(Hwloc::Hwloc UNKNOWN IMPORTED)
  set_target_properties(Hwloc::Hwloc PROPERTIES
    IMPORTED_LOCATION ${Hwloc_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${Hwloc_INCLUDE_DIR})
endif()

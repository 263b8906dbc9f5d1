# Finds oneDNN: OneDNN_FOUND, OneDNN_VERSION, target OneDNN::OneDNN.
# Not by oneDNN's own config file: Debian's asks for OpenCL headers, which a CPU has no use for.
find_path(OneDNN_INCLUDE_DIR dnnl.h)
find_library(OneDNN_LIBRARY dnnl)
mark_as_advanced(OneDNN_INCLUDE_DIR OneDNN_LIBRARY)

find_file(OneDNN_VERSION_HEADER NAMES oneapi/dnnl/dnnl_version.h dnnl_version.h
          HINTS ${OneDNN_INCLUDE_DIR})
mark_as_advanced(OneDNN_VERSION_HEADER)
if(OneDNN_VERSION_HEADER)
  set(numbers "")
  foreach(part MAJOR MINOR PATCH)
    file(STRINGS ${OneDNN_VERSION_HEADER} line REGEX "#define DNNL_VERSION_${part} +[0-9]+")
    string(REGEX MATCH "[0-9]+$" number "${line}")
    list(APPEND numbers ${number})
  endforeach()
  list(JOIN numbers . OneDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  OneDNN REQUIRED_VARS OneDNN_LIBRARY OneDNN_INCLUDE_DIR VERSION_VAR OneDNN_VERSION
  REASON_FAILURE_MESSAGE "on Debian: apt-get install libdnnl-dev")

if(OneDNN_FOUND AND NOT TARGET OneDNN::OneDNN)
  add_library(OneDNN::OneDNN UNKNOWN IMPORTED)
  set_target_properties(OneDNN::OneDNN PROPERTIES
    IMPORTED_LOCATION ${OneDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${OneDNN_INCLUDE_DIR})
endif()

# Precompiled headers of GoogleTest and nlohmann/json, which cost a unit that includes them two to three seconds each.
#
# Only in builds for sanitizers, fuzzing and debuggers: a source that forgets to include what it uses builds nevertheless, and that shall be
# noticed somewhere.
option(TANDEM_PRECOMPILE "Precompile the heaviest headers of other libraries; shortens builds, and hides missing includes" OFF)

if(TANDEM_PRECOMPILE AND TANDEM_CCACHE)
  # ccache takes no unit with a precompiled header unless it may trust that the header stands for its macros.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime ${TANDEM_CCACHE})
endif()

function(tandem_precompile_options target)
  target_compile_options(${target} PRIVATE
    "$<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>" "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
endfunction()

# tandem_precompiled_headers(NAME KIND HEADERS ... LIBRARIES ...) adds a target whose headers others reuse. KIND is that of those others, OBJECT
# of libraries or EXECUTABLE: compilers refuse a header that was compiled with other flags.
function(tandem_precompiled_headers name kind)
  cmake_parse_arguments(A "" "" "HEADERS;LIBRARIES" ${ARGN})
  set(source ${CMAKE_BINARY_DIR}/precompiled/${name}.cpp)
  file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
  if(kind STREQUAL "EXECUTABLE")
    add_executable(${name} EXCLUDE_FROM_ALL ${source})
  else()
    add_library(${name} OBJECT EXCLUDE_FROM_ALL ${source})
  endif()
  target_link_libraries(${name} PRIVATE ${A_LIBRARIES})
  target_precompile_headers(${name} PRIVATE ${A_HEADERS})
  tandem_precompile_options(${name})
endfunction()

if(TANDEM_PRECOMPILE)
  set(json "")
  if(NOT TANDEM_GGML_ONLY)
    find_package(nlohmann_json REQUIRED)
    set(json nlohmann_json::nlohmann_json)
    tandem_precompiled_headers(tandem_precompiled_json OBJECT HEADERS <nlohmann/json.hpp> LIBRARIES ${json})
  endif()
  if(TANDEM_TESTS)
    find_package(GTest REQUIRED)
    tandem_precompiled_headers(tandem_precompiled_gtest EXECUTABLE HEADERS <gtest/gtest.h> LIBRARIES GTest::gtest)
    if(json)
      tandem_precompiled_headers(tandem_precompiled_gtest_json EXECUTABLE
        HEADERS <gtest/gtest.h> <nlohmann/json.hpp> LIBRARIES GTest::gtest ${json})
    endif()
  endif()
endif()

# tandem_precompile(TARGET LIBRARIES ...): the target's units take from precompiled headers what they include of these libraries.
function(tandem_precompile target)
  if(NOT TANDEM_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(A "" "" "LIBRARIES" ${ARGN})
  set(headers "tandem_precompiled")
  foreach(library gtest json)
    if(A_LIBRARIES MATCHES "(^|;)[a-zA-Z_]+::(nlohmann_)?${library}(;|$)")
      string(APPEND headers "_${library}")
    endif()
  endforeach()
  if(TARGET ${headers})
    target_precompile_headers(${target} REUSE_FROM ${headers})
    tandem_precompile_options(${target})
  endif()
endfunction()

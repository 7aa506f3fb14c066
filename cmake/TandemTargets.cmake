# Several sources compiled as one unit share the headers they include and the templates they instantiate. A name must then be the only one in all of a target, also in anonymous namespaces, so folders of rows,
# whose files all define the same few names, are left as they are, and builds for users and developers too.
option(TANDEM_UNITY "Compile up to eight sources of a target as one unit; shortens builds from nothing, lengthens those after a change" OFF)

function(tandem_unity target sources)
  if(NOT TANDEM_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  list(FILTER sources INCLUDE REGEX "^(families|ops|formats)/|^(options|mix)_")
  set_source_files_properties(${sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  # To the compiler an anonymous namespace in what is not the main file is one in a header.
  target_compile_options(${target} PRIVATE "$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>")
endfunction()

# tandem_library(NAME SOURCES ... [DEPS ...] [PRIVATE_DEPS ...]) adds one static library of a layer.
#
# A library sees the public headers of what it links, and nothing else: that is how an upward include fails to build.
function(tandem_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(${name} STATIC ${A_SOURCES})
  target_link_libraries(${name} PUBLIC ${A_DEPS} PRIVATE ${A_PRIVATE_DEPS})
  tandem_precompile(${name} LIBRARIES ${A_DEPS} ${A_PRIVATE_DEPS})
  tandem_unity(${name} "${A_SOURCES}")
endfunction()

# tandem_test(NAME LABELS <unit|ops|models|server|fuzz|cuda ...> SOURCES ... [DEPS ...]) adds one GoogleTest program.
#
# Tests run in the source tree's root, so that they find tests/data; TANDEM_SHARED names the folder with the big goldens.
function(tandem_test name)
  if(NOT TANDEM_TESTS)
    return()
  endif()
  cmake_parse_arguments(A "" "TIMEOUT" "LABELS;SOURCES;DEPS" ${ARGN})
  find_package(GTest REQUIRED)
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_DEPS} tandem_test_support GTest::gtest GTest::gtest_main)
  tandem_precompile(${name} LIBRARIES ${A_DEPS} GTest::gtest)
  tandem_unity(${name} "${A_SOURCES}")
  if("unit" IN_LIST A_LABELS)
    # They wait for nothing that they compute themselves, and compilers take a fifth less time for them.
    target_compile_options(${name} PRIVATE "$<$<CONFIG:Release>:-O1>")
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT})
endfunction()

# tandem_python_test(NAME SCRIPT LABELS <label ...> [ARGS ...] [TIMEOUT n]) adds a test that is a script around programs; nothing
# where there is no Python. Its status 77 says that Python packages or data are missing: the test then counts as skipped.
function(tandem_python_test name script)
  if(NOT TANDEM_TESTS)
    return()
  endif()
  find_package(Python3 COMPONENTS Interpreter)
  if(NOT Python3_Interpreter_FOUND)
    return()
  endif()
  cmake_parse_arguments(A "" "TIMEOUT" "LABELS;ARGS" ${ARGN})
  add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_CURRENT_SOURCE_DIR}/${script} ${A_ARGS} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# tandem_bench(NAME SOURCES ... [DEPS ...]) adds one Google Benchmark program.
function(tandem_bench name)
  if(NOT TANDEM_BENCH)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  find_package(benchmark REQUIRED)
  add_executable(${name} ${A_SOURCES})
  target_link_libraries(${name} PRIVATE ${A_DEPS} benchmark::benchmark)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bench)
endfunction()

# tandem_fuzzer(NAME SOURCES ... [DEPS ...]) adds one libFuzzer program, with -DTANDEM_FUZZ=ON under Clang.
function(tandem_fuzzer name)
  if(NOT TANDEM_FUZZ)
    return()
  endif()
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_libraries(${name} PRIVATE ${A_DEPS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fuzz)
endfunction()

# tandem_tool(NAME SOURCES ... [DEPS ...] [OLD_NAME name]) adds one executable in build/bin, and to the global property
# TANDEM_TOOLS. OLD_NAME is a link beside it.
function(tandem_tool name)
  cmake_parse_arguments(A "" "OLD_NAME" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${A_SOURCES})
  set_property(GLOBAL APPEND PROPERTY TANDEM_TOOLS ${name})
  target_link_libraries(${name} PRIVATE ${A_DEPS})
  if(A_OLD_NAME)
    add_custom_command(TARGET ${name} POST_BUILD
      COMMAND ${CMAKE_COMMAND} -E create_symlink ${name} $<TARGET_FILE_DIR:${name}>/${A_OLD_NAME})
  endif()
endfunction()

# The targets tandem_fmt and tandem_spdlog: fmt and spdlog as this build links them.
#
# Debian and Ubuntu package both as shared libraries only. A build with -DTANDEM_STATIC=ON takes an archive where the
# system has one, and otherwise compiles their headers in, which costs a few seconds per including unit.
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)

# Sets <out> to a target of the library that leaves no shared object in a static program.
function(tandem_formatting_target out library header_only)
  get_target_property(type ${library} TYPE)
  if(TANDEM_STATIC AND NOT type STREQUAL "STATIC_LIBRARY")
    set(library ${header_only})
  endif()
  set(${out} ${library} PARENT_SCOPE)
endfunction()

tandem_formatting_target(fmt_target fmt::fmt fmt::fmt-header-only)
add_library(tandem_fmt INTERFACE)
target_link_libraries(tandem_fmt INTERFACE ${fmt_target})

tandem_formatting_target(spdlog_target spdlog::spdlog spdlog::spdlog_header_only)
add_library(tandem_spdlog INTERFACE)
if(spdlog_target STREQUAL "spdlog::spdlog_header_only")
  # Not the packaged target itself: it links the shared fmt.
  target_compile_definitions(tandem_spdlog INTERFACE $<TARGET_PROPERTY:${spdlog_target},INTERFACE_COMPILE_DEFINITIONS>)
  target_include_directories(tandem_spdlog SYSTEM INTERFACE $<TARGET_PROPERTY:${spdlog_target},INTERFACE_INCLUDE_DIRECTORIES>)
  target_link_libraries(tandem_spdlog INTERFACE tandem_fmt Threads::Threads)
else()
  target_link_libraries(tandem_spdlog INTERFACE ${spdlog_target})
endif()

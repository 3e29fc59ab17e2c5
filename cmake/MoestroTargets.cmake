# How every target of the tree is made.
#
# The include direction (services -> {orchestrator, store, kernels} -> common) is enforced here: a target sees only the
# top-level folders ("roots") of itself and of what it links. Each root is exported through a folder in the build tree
# that holds one link to it, so that `#include "store/..."` does not resolve in a target that does not link a store
# library.

# What every executable and library is compiled with. Checks stay on in release; warnings are errors.
add_library(moestro_flags INTERFACE)
target_compile_options(moestro_flags INTERFACE
  -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wimplicit-fallthrough -Werror
  $<$<CXX_COMPILER_ID:GNU>:-Wno-error=maybe-uninitialized -Wno-error=stringop-overflow -Wno-error=array-bounds>
  # Sources that are compiled together are included by their whole paths: __FILE__ shall not differ between clones.
  -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=
  -fno-omit-frame-pointer $<$<BOOL:${MOESTRO_DEBUG_LINES}>:-g1>
  # g++ collects its garbage from 128 MB on: a tenth of the time of a large source, for 100 MB less.
  $<$<COMPILE_LANG_AND_ID:CXX,GNU>:SHELL:--param=ggc-min-heapsize=1048576>)
if(MOESTRO_UNITY)
  # A source that is included by another looks like a header to g++.
  target_compile_options(moestro_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
endif()
if(MOESTRO_SANITIZE)
  target_compile_options(moestro_flags INTERFACE -fsanitize=${MOESTRO_SANITIZE} -fno-sanitize-recover=undefined)
  target_link_options(moestro_flags INTERFACE -fsanitize=${MOESTRO_SANITIZE})
  if(MOESTRO_SANITIZE MATCHES "thread")
    # Boost.Asio has fences that the thread sanitizer cannot see; g++ warns wherever one is inlined.
    target_compile_options(moestro_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()

find_program(MOESTRO_CCACHE ccache)
if(MOESTRO_CCACHE)
  # Paths are hashed relative to the tree, so that every build folder and every clone shares the cache. A precompiled
  # header differs from folder to folder; what counts is the text it was made of, which cmake/compile writes beside it.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_SOURCE_DIR}/cmake/compile ${CMAKE_SOURCE_DIR} ${MOESTRO_CCACHE})
endif()
find_program(MOESTRO_MOLD mold)
if(MOESTRO_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

function(moestro_root root)
  set(dir ${CMAKE_BINARY_DIR}/roots/${root})
  if(NOT EXISTS ${dir}/${root})
    file(MAKE_DIRECTORY ${dir})
    file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${root} ${dir}/${root} SYMBOLIC)
  endif()
endfunction()

# The headers that everybody includes, read once for each kind of target: common, and with nlohmann's JSON or GoogleTest
# beside; that of what runs seldom has the JSON, too.
# moestro_precompiled(KIND HEADERS ... [DEPS targets] [OPTIONS flags])
function(moestro_precompiled kind)
  cmake_parse_arguments(A "" "" "HEADERS;DEPS;OPTIONS" ${ARGN})
  set(empty ${CMAKE_BINARY_DIR}/precompiled/${kind}.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(moestro_precompiled_${kind} OBJECT ${empty})
  target_link_libraries(moestro_precompiled_${kind} PRIVATE moestro_flags ${A_DEPS})
  target_compile_options(moestro_precompiled_${kind} PRIVATE ${A_OPTIONS})
  target_precompile_headers(moestro_precompiled_${kind} PRIVATE ${MOESTRO_COMMON_HEADERS} ${A_HEADERS})
  set_target_properties(moestro_precompiled_${kind} PROPERTIES UNITY_BUILD OFF)
endfunction()

# Called once, when the packages are known.
macro(moestro_make_precompiled_headers)
  set(MOESTRO_COMMON_HEADERS <algorithm> <array> <atomic> <bit> <cerrno> <charconv> <chrono> <cmath>
    <condition_variable> <cstddef> <cstdint> <cstdio> <cstdlib> <cstring> <deque> <filesystem> <fstream> <functional>
    <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string> <string_view> <thread> <tuple>
    <unordered_map> <utility> <variant> <vector>)
  moestro_precompiled(common)
  moestro_precompiled(json HEADERS <nlohmann/json.hpp> DEPS nlohmann_json::nlohmann_json)
  if(MOESTRO_SELDOM_OPTIONS)
    moestro_precompiled(seldom
      HEADERS <nlohmann/json.hpp>
      DEPS nlohmann_json::nlohmann_json
      OPTIONS ${MOESTRO_SELDOM_OPTIONS})
  endif()
  if(MOESTRO_TESTS)
    set(of_tests HEADERS <nlohmann/json.hpp> <gmock/gmock.h> <gtest/gtest.h>
      DEPS nlohmann_json::nlohmann_json GTest::gmock)
    moestro_precompiled(tests ${of_tests} OPTIONS ${MOESTRO_TEST_OPTIONS})
    moestro_precompiled(computing_tests ${of_tests})
  endif()
endmacro()

# How a target of ours is compiled: its precompiled headers, by what it links, and its sources together (MOESTRO_UNITY).
# Where MOESTRO_RUNS_SELDOM is set, with the options for such code.
function(moestro_compiled name)
  set(kind common)
  if(nlohmann_json::nlohmann_json IN_LIST ARGN)
    set(kind json)
  endif()
  if(MOESTRO_RUNS_SELDOM AND MOESTRO_SELDOM_OPTIONS)
    set(kind seldom)
    target_compile_options(${name} PRIVATE ${MOESTRO_SELDOM_OPTIONS})
  endif()
  if(tests IN_LIST ARGN)
    set(kind tests)
    target_compile_options(${name} PRIVATE ${MOESTRO_TEST_OPTIONS})
  elseif(computing_tests IN_LIST ARGN)
    set(kind computing_tests)
  endif()
  if(NOT kind MATCHES tests)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${MOESTRO_UNITY} UNITY_BUILD_BATCH_SIZE 16)
  endif()
  cmake_language(EVAL CODE "cmake_language(DEFER CALL moestro_precompile ${name} moestro_precompiled_${kind})")
endfunction()

# At the end of the folder, when all is said of the target and its sources: a precompiled header fits only what is
# compiled with the same flags.
function(moestro_precompile name from)
  get_target_property(position_independent ${name} POSITION_INDEPENDENT_CODE)
  if(position_independent)
    return()
  endif()
  target_precompile_headers(${name} REUSE_FROM ${from})
  get_target_property(sources ${name} SOURCES)
  foreach(source ${sources})
    get_source_file_property(own_options ${source} COMPILE_OPTIONS)
    if(own_options)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()

# moestro_library(NAME ROOT common SOURCES a.cc b.cc [DEPS targets] [PRIVATE_DEPS targets])
function(moestro_library name)
  cmake_parse_arguments(A "" "ROOT" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  moestro_root(${A_ROOT})
  if(A_SOURCES)
    add_library(${name} STATIC ${A_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${name} PRIVATE moestro_flags ${A_PRIVATE_DEPS})
    moestro_compiled(${name} ${A_DEPS} ${A_PRIVATE_DEPS})
  else()
    add_library(${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  target_include_directories(${name} ${scope} ${CMAKE_BINARY_DIR}/roots/${A_ROOT})
  target_link_libraries(${name} ${scope} ${A_DEPS})
endfunction()

# moestro_program(NAME SOURCES main.cc [DEPS targets]) -> build/.../bin/NAME
function(moestro_program name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPS" ${ARGN})
  moestro_root(services)
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_BINARY_DIR}/roots/services)
  target_link_libraries(${name} PRIVATE moestro_flags ${A_DEPS})
  moestro_compiled(${name} ${A_DEPS})
endfunction()

# What every test finds in its environment.
set(MOESTRO_TEST_ENVIRONMENT "MOESTRO_SOURCE_DIR=${CMAKE_SOURCE_DIR}" "MOESTRO_BIN_DIR=${CMAKE_BINARY_DIR}/bin")
if(MOESTRO_SANITIZE MATCHES thread)
  list(APPEND MOESTRO_TEST_ENVIRONMENT "TSAN_OPTIONS=halt_on_error=1:suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
endif()

# moestro_test(NAME SOURCES x_test.cc [DEPS targets] [PROGRAMS moestro-store ...] [LABELS l] [TIMEOUT s]
#              [TOGETHER] [COMPUTES])
# A GoogleTest binary, one ctest entry. TOGETHER: its sources are compiled together, as a room's are; most of a test's
# time goes to headers. COMPUTES: its own sources take most of its time, so they are optimised.
# It finds the tree and the programs through tests/support/places.h; PROGRAMS are built first.
function(moestro_test name)
  cmake_parse_arguments(A "TOGETHER;COMPUTES" "TIMEOUT" "SOURCES;DEPS;PROGRAMS;LABELS" ${ARGN})
  moestro_root(tests)
  add_executable(${name} ${A_SOURCES})
  target_include_directories(${name} PRIVATE ${CMAKE_BINARY_DIR}/roots/tests)
  target_link_libraries(${name} PRIVATE moestro_flags ${A_DEPS} moestro_test_places GTest::gmock GTest::gtest_main)
  set(kind tests)
  if(A_COMPUTES)
    set(kind computing_tests)
  endif()
  moestro_compiled(${name} ${kind})
  if(A_TOGETHER)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${MOESTRO_UNITY} UNITY_BUILD_BATCH_SIZE 12)
  endif()
  target_compile_options(${name} PRIVATE -Wno-dangling-else)  # GoogleTest's macros below an unbraced if
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(A_PROGRAMS)
    add_dependencies(${name} ${A_PROGRAMS})
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${A_TIMEOUT} LABELS "${A_LABELS}"
    ENVIRONMENT "${MOESTRO_TEST_ENVIRONMENT}")
endfunction()

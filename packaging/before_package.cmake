# Read by cpack before it installs what it packs. With Ninja it compiles nothing itself, and would pack what is there.

if(NOT CPACK_MOESTRO_INSTRUCTION_SETS STREQUAL all)  # others would run the generic kernels, many times slower
  message(FATAL_ERROR
    "these programs have kernels for this machine alone, and a package is for many. Configure for all first: "
    "cmake --preset dev -DMOESTRO_TESTS=OFF, or -DMOESTRO_INSTRUCTION_SETS=all in this folder; cpack compiles what is "
    "missing")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${CPACK_MOESTRO_BUILD_DIR} --target ${CPACK_MOESTRO_TARGETS}
  RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the programs cannot be compiled, so there is nothing to pack; what is wrong stands above")
endif()

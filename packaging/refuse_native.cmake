# Read by cpack where kernels were compiled for one machine alone: others would run the generic ones, many times slower.
message(FATAL_ERROR
  "these programs have kernels for this machine alone, and a package is for many. Configure for all first: "
  "cmake --preset dev -DMOESTRO_TESTS=OFF, or -DMOESTRO_INSTRUCTION_SETS=all in this folder; cpack compiles what is "
  "missing")

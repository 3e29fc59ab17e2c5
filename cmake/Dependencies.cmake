# Third-party packages, each found once, as imported targets. scripts/install-deps installs them on Debian and Ubuntu.
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(spdlog REQUIRED)
find_package(FlatBuffers CONFIG REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(Boost 1.74 REQUIRED)
# Beast 1.74 asserts that the last chunk of a body comes in at least five bytes, and "0 CR LF" and what follows may come
# in pieces of one: a client would end the server. Without the assertion the parser waits for the rest, as it should
# (RequestParser.AChunkedBodyMayComeByteByByte).
add_compile_definitions(BOOST_DISABLE_ASSERTS)
find_package(OpenSSL REQUIRED COMPONENTS SSL Crypto)
if(MOESTRO_TESTS)
  find_package(GTest REQUIRED)
endif()
pkg_check_modules(zmq REQUIRED IMPORTED_TARGET libzmq)
pkg_check_modules(uring REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(sqlite REQUIRED IMPORTED_TARGET sqlite3)
pkg_check_modules(hiredis REQUIRED IMPORTED_TARGET hiredis)
# -D_FILE_OFFSET_BITS=64: the rule on 64-bit machines, and one macro more does not fit the precompiled headers.
set_target_properties(PkgConfig::hiredis PROPERTIES INTERFACE_COMPILE_OPTIONS "" INTERFACE_COMPILE_DEFINITIONS "")
pkg_check_modules(pcre2 REQUIRED IMPORTED_TARGET libpcre2-8)
pkg_check_modules(utf8proc REQUIRED IMPORTED_TARGET libutf8proc)
find_program(FLATC flatc REQUIRED)

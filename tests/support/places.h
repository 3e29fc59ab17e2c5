#pragma once
// Where the source tree and the built programs are. From the environment (MOESTRO_SOURCE_DIR, MOESTRO_BIN_DIR), which
// ctest sets and a script sets on a machine that the tests were carried to; else where this build found and put them.

#include <filesystem>

namespace moestro::test {

std::filesystem::path source_dir();
std::filesystem::path bin_dir();

}  // namespace moestro::test

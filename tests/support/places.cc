#include "tests/support/places.h"

#include <cstdlib>

namespace moestro::test {
namespace {

std::filesystem::path place(const char* variable, const char* of_this_build) {
  const char* set = std::getenv(variable);
  return set != nullptr && *set != '\0' ? set : of_this_build;
}

}  // namespace

std::filesystem::path source_dir() { return place("MOESTRO_SOURCE_DIR", MOESTRO_BUILT_FROM); }
std::filesystem::path bin_dir() { return place("MOESTRO_BIN_DIR", MOESTRO_BUILT_TO); }

}  // namespace moestro::test

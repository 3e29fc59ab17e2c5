#include "orchestrator/batch/file_store.h"

#include <array>

#include "common/random_value.h"

namespace moestro::orchestrator {

namespace {
constexpr size_t kIdDigits = 24;
}

std::string new_id(const std::string& prefix) {
  std::string id = prefix;
  for (const unsigned char b : random_value<std::array<unsigned char, kIdDigits / 2>>()) {
    constexpr const char* kHex = "0123456789abcdef";
    id += kHex[b >> 4];
    id += kHex[b & 15];
  }
  return id;
}

bool is_id(const std::string& text, const std::string& prefix) {
  return text.size() == prefix.size() + kIdDigits && text.starts_with(prefix) &&
         text.find_first_not_of("0123456789abcdef", prefix.size()) == std::string::npos;
}

}  // namespace moestro::orchestrator

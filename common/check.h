#pragma once
// MOESTRO_CHECK is for bugs only. Nothing that a client, a file or a peer sends may reach a check. Checks stay on in
// release builds.

#include <string_view>

namespace moestro {
/// Prints file, line, condition and message to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);
}  // namespace moestro

#define MOESTRO_CHECK(condition, message)                                              \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::moestro::check_failed(__FILE__, __LINE__, #condition, (message));              \
  } while (false)

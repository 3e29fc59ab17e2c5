#pragma once
// Random numbers that nobody can guess.

#include <sys/random.h>

#include <cerrno>
#include <type_traits>

#include "common/check.h"

namespace moestro {

/// Of the kernel's bytes. The program ends where it gives none: ids would be guessed, or be given twice.
template <typename T>
T random_value() {
  static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 256);  // no more is drawn in one piece
  T value{};
  ssize_t drawn = -1;
  do drawn = ::getrandom(&value, sizeof value, 0);
  while (drawn < 0 && errno == EINTR);
  MOESTRO_CHECK(drawn == static_cast<ssize_t>(sizeof value), "the kernel gives random bytes");
  return value;
}

}  // namespace moestro

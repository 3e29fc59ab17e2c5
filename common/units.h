#pragma once
// Amounts in the form for people and for JSON.

#include <cstdint>
#include <string>

namespace moestro {

/// "12 MiB", rounded down.
inline std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

inline double seconds_of(uint64_t microseconds) { return static_cast<double>(microseconds) * 1e-6; }

}  // namespace moestro

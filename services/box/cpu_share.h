#pragma once
// Which part of a set of CPUs is a worker's.

#include <string>

#include "common/status.h"

namespace moestro::box {

/// The `k`th of `of` workers that share the CPUs.
struct CpuShare {
  int k = 0, of = 1;
};

/// "K/N", as --cpu-share takes it.
std::string text_of(const CpuShare& share);
/// K from 0 to N - 1.
Result<CpuShare> parse_cpu_share(const std::string& text);

}  // namespace moestro::box

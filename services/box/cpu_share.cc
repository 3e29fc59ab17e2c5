#include "services/box/cpu_share.h"

#include <charconv>

namespace moestro::box {

std::string text_of(const CpuShare& share) { return std::to_string(share.k) + "/" + std::to_string(share.of); }

Result<CpuShare> parse_cpu_share(const std::string& text) {
  const Status wrong =
      invalid_argument("--cpu-share '" + text + "' is not K/N, the Kth of N workers, K from 0 to N - 1");
  CpuShare share;
  const char* end = text.data() + text.size();
  const auto k = std::from_chars(text.data(), end, share.k);
  if (k.ec != std::errc{} || k.ptr == end || *k.ptr != '/') return wrong;
  const auto of = std::from_chars(k.ptr + 1, end, share.of);
  if (of.ec != std::errc{} || of.ptr != end || share.k < 0 || share.of > 1024 || share.k >= share.of) return wrong;
  return share;
}

}  // namespace moestro::box

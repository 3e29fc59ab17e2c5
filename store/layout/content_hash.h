#pragma once
// The content of a blob as the store read it: XXH3-128 over the list of its slices' {length, XXH3-128 of the bytes}, in
// order. So the borders of the slices are part of it. Never taken from a manifest. (docs/decisions/0008-content.md)

#include <compare>
#include <cstdint>

namespace moestro::store {

struct ContentHash {
  uint64_t low = 0, high = 0;
  /// All zero: not known yet. Unknown content is equal to nothing.
  bool known() const { return (low | high) != 0; }
  auto operator<=>(const ContentHash&) const = default;
};

/// Two blobs may share memory if these keys are equal: the bytes, and the format in which kernels read them.
struct ContentKey {
  ContentHash hash;
  uint64_t length = 0;
  uint32_t format = 0;  ///< blob_format()
  auto operator<=>(const ContentKey&) const = default;
};

/// {layout:16, precision:8, dense:8}. Dense weights are never evicted and experts are, so the two never share memory.
constexpr uint32_t blob_format(uint32_t layout, uint8_t precision, bool dense) {
  return layout << 16 | uint32_t{precision} << 8 | uint32_t{dense};
}

}  // namespace moestro::store

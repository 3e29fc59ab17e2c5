#pragma once
// An order of keys that depends neither on time nor on neighbours in a layer.

#include <cstdint>

namespace moestro::policy {

constexpr uint32_t mixed(uint32_t key) {
  key ^= key >> 16, key *= 0x7FEB352DU;
  key ^= key >> 15, key *= 0x846CA68BU;
  return key ^ (key >> 16);
}

}  // namespace moestro::policy

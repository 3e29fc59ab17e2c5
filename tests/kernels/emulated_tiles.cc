// The products of avx512_amx.cc with tiles that are arrays: all of it but the instructions themselves, on machines that
// lack them. Compiled with its flags, called only where the machine has those.

#include "tests/kernels/emulated_tiles.h"

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"

namespace moestro::kernels::cpu {
namespace {
// clang-format off
#include "kernels/cpu/isa/avx512_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
#include "kernels/cpu/isa/rounded_rows.inc"
#include "kernels/cpu/isa/rounded_panel.inc"
#include "kernels/cpu/isa/rounded_in_12_panel.inc"
// clang-format on

struct Tile {
  alignas(64) unsigned char bytes[16][64];
};
thread_local Tile tiles[8];
thread_local bool begun = false;
int64_t multiplied = 0;

float widened(const unsigned char* bf16) {
  const uint32_t bits = static_cast<uint32_t>(bf16[0]) << 16 | static_cast<uint32_t>(bf16[1]) << 24;
  float f;
  __builtin_memcpy(&f, &bits, sizeof f);
  return f;
}

/// As in kernels/cpu/isa/tiles_amx.inc.
struct Tiles {
  static void begin() { begun = true; }
  static void end() { begun = false; }
  static Tile& tile(int t) {
    if (!begun) __builtin_trap();  // what the instructions do without a configuration
    return tiles[t];
  }
  template <int T>
  static void zero() {
    __builtin_memset(&tile(T), 0, sizeof(Tile));
  }
  template <int T>
  static void load(const void* from, int64_t stride) {
    for (int r = 0; r < 16; ++r) __builtin_memcpy(tile(T).bytes[r], static_cast<const char*>(from) + r * stride, 64);
  }
  template <int T>
  static void store(void* to, int64_t stride) {
    for (int r = 0; r < 16; ++r) __builtin_memcpy(static_cast<char*>(to) + r * stride, tile(T).bytes[r], 64);
  }
  template <int C, int A, int B>
  static void dot_bf16() {
    ++multiplied;
    auto* sums = reinterpret_cast<float(*)[16]>(tile(C).bytes);
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 32; ++k)
        for (int j = 0; j < 16; ++j)
          sums[i][j] += widened(&tile(A).bytes[i][k * 2]) * widened(&tile(B).bytes[k / 2][j * 4 + k % 2 * 2]);
  }
  template <int C, int A, int B>
  static void dot_bytes() {
    ++multiplied;
    auto* sums = reinterpret_cast<int32_t(*)[16]>(tile(C).bytes);
    for (int i = 0; i < 16; ++i)
      for (int k = 0; k < 64; ++k)
        for (int j = 0; j < 16; ++j)
          sums[i][j] += static_cast<int8_t>(tile(A).bytes[i][k]) * tile(B).bytes[k / 4][j * 4 + k % 4];
  }
};

#include "kernels/cpu/isa/rounded_tiles.inc"
}  // namespace

const TileProducts kEmulatedTileProducts = kTileProducts;

int64_t emulated_tile_dots() {
  return multiplied;
}
}  // namespace moestro::kernels::cpu

// Rounded products of many tokens with tiles (AMX), and with vectors for the tokens that fill no tile; called only
// where the machine has them and the system lets this process use them (kernels/cpu/isa.cc).

#include <immintrin.h>

#include "kernels/cpu/isa/attributes.h"
#include "kernels/cpu/kernel_table.h"

namespace moestro::kernels::cpu {
namespace {
// Each builds on the ones before it.
// clang-format off
#include "kernels/cpu/isa/avx512_vec.inc"
#include "kernels/cpu/isa/lanes.inc"
#include "kernels/cpu/isa/rounded_rows.inc"
#include "kernels/cpu/isa/rounded_panel.inc"
#include "kernels/cpu/isa/rounded_in_12_panel.inc"
#include "kernels/cpu/isa/tiles_amx.inc"
#include "kernels/cpu/isa/rounded_tiles.inc"
// clang-format on
}  // namespace

extern const TileProducts kAmxProducts;
const TileProducts kAmxProducts = kTileProducts;

bool amx_multiplies_rightly() {
  alignas(64) int8_t a[16][64];
  alignas(64) uint8_t b[16][64];
  alignas(64) uint16_t narrow_a[16][32], narrow_b[16][32];
  alignas(64) int32_t whole[16][16];
  alignas(64) float real[16][16];
  const auto bf16 = [](int value) {
    const float f = static_cast<float>(value);
    uint32_t bits;
    __builtin_memcpy(&bits, &f, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);  // exact: |value| < 256
  };
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 64; ++j) {
      a[i][j] = static_cast<int8_t>((i * 37 + j * 11) % 255 - 127);
      b[i][j] = static_cast<uint8_t>((i * 53 + j * 29) % 256);
    }
    for (int j = 0; j < 32; ++j) narrow_a[i][j] = bf16(a[i][j]), narrow_b[i][j] = bf16(b[i][j]);
  }
  Tiles::begin();
  Tiles::zero<0>();
  Tiles::zero<1>();
  Tiles::load<4>(a, 64);
  Tiles::load<5>(b, 64);
  Tiles::dot_bytes<0, 4, 5>();
  Tiles::load<4>(narrow_a, 64);
  Tiles::load<5>(narrow_b, 64);
  Tiles::dot_bf16<1, 4, 5>();
  Tiles::store<0>(whole, 64);
  Tiles::store<1>(real, 64);
  Tiles::end();
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 16; ++j) {
      int bytes = 0, numbers = 0;
      for (int k = 0; k < 64; ++k) bytes += a[i][k] * b[k / 4][j * 4 + k % 4];
      for (int k = 0; k < 32; ++k) numbers += a[i][k] * b[k / 2][j * 2 + k % 2];
      if (whole[i][j] != bytes || real[i][j] != static_cast<float>(numbers)) return false;
    }
  }
  return true;
}
}  // namespace moestro::kernels::cpu

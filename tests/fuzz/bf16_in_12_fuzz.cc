// fuzz-deps: moestro_base
// A matrix in 12 bits out of a pack, whatever its bytes are: rows of it become bf16 and nothing beside them is touched.
// And of any bf16 numbers, what is encoded comes back.

#include <algorithm>
#include <cstring>
#include <vector>

#include "common/bf16_in_12.h"
#include "common/check.h"

using namespace moestro;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 4) return 0;
  const int64_t rows = data[0] % 9 + 1, cols = data[1] % 150 + 1, first = data[2] % rows,
                end = first + data[3] % (rows - first + 1);
  data += 4, size -= 4;
  std::vector<std::byte> values(static_cast<size_t>(rows * bf16_in_12::blocks_of(cols) * bf16_in_12::kBlockBytes)),
      exponents(static_cast<size_t>(bf16_in_12::exponents_bytes(rows, cols)));
  const size_t listed = std::min(size, exponents.size());
  std::memcpy(exponents.data(), data, listed);
  std::memcpy(values.data(), data + listed, std::min(size - listed, values.size()));
  std::vector<uint16_t> out(static_cast<size_t>((end - first) * cols));
  bf16_in_12::decode(values.data(), bf16_in_12::read_exponents(exponents.data(), rows * cols), cols, first, end,
                     out.data());

  std::vector<uint16_t> matrix(static_cast<size_t>(rows * cols)), again(matrix.size());
  std::memcpy(matrix.data(), data, std::min(size, matrix.size() * sizeof(uint16_t)));
  if (!bf16_in_12::encode(matrix.data(), rows, cols, values.data(), exponents.data())) return 0;
  bf16_in_12::decode(values.data(), bf16_in_12::read_exponents(exponents.data(), rows * cols), cols, 0, rows,
                     again.data());
  MOESTRO_CHECK(again == matrix, "what went in");
  return 0;
}

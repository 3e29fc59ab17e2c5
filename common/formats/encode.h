#pragma once
// Numbers to blocks of quantised values: the other way of common/formats/blocks.h.

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/dtype.h"

namespace moestro::formats {

/// Whether there is an encoder: q8_0, q6_k, q5_k, q4_k, q5_0, q4_0, iq4_nl, mxfp4, fp8, fp8_g32.
bool can_encode(DType d);
/// "q8_0, q6_k, ..."; `columns`: only those whose blocks divide a row of so many.
std::string encodable_formats(int64_t columns = 0);

/// Bits of a stored value with its share of scales. kMixed has none.
double bits_per_value(DType d);

/// Writes row_bytes(d, cols) bytes; cols are whole blocks and can_encode(d). Scales are those of about the least
/// squared error; the same numbers become the same bytes on every machine. False if a number is not finite or beyond
/// what the format's scales can say; then the bytes are not to be used. A block may become zeros if all its numbers are
/// too small for its scale, which is mostly f16: in q8_0 if none is above about 3.8e-6, as in llama.cpp.
[[nodiscard]] bool encode(DType d, const float* row, int64_t cols, std::byte* out);

}  // namespace moestro::formats

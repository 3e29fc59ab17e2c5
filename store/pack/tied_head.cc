#include "store/pack/tied_head.h"

#include <algorithm>
#include <cstring>

#include "common/model/strict_json.h"
#include "store/pack/convert.h"

namespace moestro::store {
namespace {

constexpr uint64_t kPiece = 1 << 20;  // values

/// Values [first, first + count) as they are stored, and as f32.
struct Piece {
  std::vector<std::byte> bytes;
  std::vector<float> values;

  Status read(const Checkpoint& checkpoint, const SourceTensor& tensor, uint64_t first, uint64_t count) {
    const auto element = static_cast<uint64_t>(dtype_bytes(*tensor.dtype));
    bytes.resize(count * element);
    return checkpoint.read(tensor, first * element, bytes);
  }
  void convert(const SourceTensor& tensor, uint64_t count) {
    values.resize(count);
    const bool fits = convert_values(*tensor.dtype, bytes.data(), DType::kF32,
                                     reinterpret_cast<std::byte*>(values.data()), static_cast<int64_t>(count));
    MOESTRO_CHECK(fits, "f32 holds every value of a checkpoint");
  }
};

}  // namespace

Status check_equal_tensors(const Checkpoint& checkpoint, const std::string& name, const std::string& other,
                           const std::string& because, const std::string& mend) {
  const SourceTensor &a = checkpoint.tensor(name), &b = checkpoint.tensor(other);
  const uint64_t all = a.bytes / static_cast<uint64_t>(dtype_bytes(*a.dtype));
  Piece x, y;
  for (uint64_t first = 0; first < all; first += kPiece) {
    const uint64_t count = std::min(kPiece, all - first);
    MOESTRO_RETURN_IF_ERROR(x.read(checkpoint, a, first, count));
    MOESTRO_RETURN_IF_ERROR(y.read(checkpoint, b, first, count));
    if (a.dtype == b.dtype && x.bytes == y.bytes) continue;
    x.convert(a, count), y.convert(b, count);
    if (x.values != y.values)
      return invalid_argument(
          checkpoint.directory().string() + ": " + because + ", but tensor " + model::in_quotes(name) +
          " has other values than " + model::in_quotes(other) + "; " + mend);
  }
  return Status::ok();
}

}  // namespace moestro::store

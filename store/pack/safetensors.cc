#include "store/pack/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "common/model/strict_json.h"

namespace moestro::store {
namespace {

using model::in_quotes;
using nlohmann::json;

constexpr uint64_t kHeaderBytesMax = 100'000'000;  // what the format's own reader allows
constexpr size_t kHeaderDimensionsMax = 8;

struct Format {
  const char* name;
  uint64_t bits;
  std::optional<DType> dtype;
};

const std::array<Format, 20> kFormats = {{
    {"F32", 32, DType::kF32},
    {"BF16", 16, DType::kBF16},
    {"F16", 16, DType::kF16},
    {"F64", 64, {}},
    {"I64", 64, {}},
    {"U64", 64, {}},
    {"I32", 32, {}},
    {"U32", 32, {}},
    {"I16", 16, {}},
    {"U16", 16, {}},
    {"I8", 8, {}},
    {"U8", 8, {}},
    {"BOOL", 8, {}},
    {"F8_E4M3", 8, {}},
    {"F8_E5M2", 8, {}},
    {"F8_E8M0", 8, {}},
    {"C64", 64, {}},
    {"F4", 4, {}},
    {"F6_E2M3", 6, {}},
    {"F6_E3M2", 6, {}},
}};

std::optional<uint64_t> unsigned_number(const json& value) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) return std::nullopt;
  return value.get<uint64_t>();
}

Status parse_shape(const json& value, SourceTensor& tensor) {
  if (!value.is_array() || value.size() > kHeaderDimensionsMax)
    return invalid_argument("shape is not a list of at most 8 numbers");
  for (const json& item : value) {
    const auto n = unsigned_number(item);
    if (!n || *n > static_cast<uint64_t>(INT64_MAX)) return invalid_argument("shape holds something else than sizes");
    tensor.shape.push_back(static_cast<int64_t>(*n));
  }
  return Status::ok();
}

Status check_bytes(const SourceTensor& tensor, uint64_t bits) {
  uint64_t total = bits;
  for (const int64_t n : tensor.shape)
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(n), &total)) return invalid_argument("shape overflows");
  if (total % 8 != 0 || total / 8 != tensor.bytes)
    return invalid_argument("its shape needs " + std::to_string(total / 8) + " bytes, its data_offsets span " +
                            std::to_string(tensor.bytes));
  return Status::ok();
}

Status parse_entry(const json& entry, uint64_t data_start, uint64_t file_size, SourceTensor& tensor) {
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
      !entry.contains("data_offsets"))
    return invalid_argument("must have dtype, shape and data_offsets, and nothing else");
  if (!entry["dtype"].is_string()) return invalid_argument("dtype is not a string");
  tensor.format = entry["dtype"].get<std::string>();
  const auto format =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const Format& f) { return tensor.format == f.name; });
  if (format == kFormats.end()) return unsupported("dtype " + in_quotes(tensor.format) + " is unknown");
  tensor.dtype = format->dtype;
  MOESTRO_RETURN_IF_ERROR(parse_shape(entry["shape"], tensor));
  const json& offsets = entry["data_offsets"];
  if (!offsets.is_array() || offsets.size() != 2) return invalid_argument("data_offsets is not a pair of numbers");
  const auto begin = unsigned_number(offsets[0]), end = unsigned_number(offsets[1]);
  if (!begin || !end || *begin > *end) return invalid_argument("data_offsets is not a pair of rising numbers");
  if (*end > file_size - data_start)
    return invalid_argument("ends at byte " + std::to_string(*end) + " of " + std::to_string(file_size - data_start) +
                            "; the file is truncated or its header lies");
  tensor.offset = data_start + *begin;
  tensor.bytes = *end - *begin;
  return check_bytes(tensor, format->bits);
}

// Bytes back to back from the data's start to the file's end: an overlap or a hole means that the header does not fit
// the data.
Status check_cover(const std::vector<SourceTensor>& tensors, uint64_t data_start, uint64_t file_size,
                   const std::string& where) {
  std::vector<const SourceTensor*> order;
  for (const SourceTensor& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->offset, a->bytes) < std::pair(b->offset, b->bytes);
  });
  uint64_t end = data_start;
  for (const SourceTensor* t : order) {
    if (t->offset < end) return invalid_argument(where + ": tensor " + in_quotes(t->name) + " overlaps another one");
    if (t->offset > end)
      return invalid_argument(where + ": bytes before tensor " + in_quotes(t->name) + " belong to no tensor");
    end = t->offset + t->bytes;
  }
  if (end != file_size)
    return invalid_argument(where + ": " + std::to_string(file_size - end) + " bytes at the end belong to no tensor");
  return Status::ok();
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const int64_t n : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(n);
  return text + "]";
}

Result<std::vector<SourceTensor>> parse_safetensors_header(std::string_view header, uint64_t data_start,
                                                           uint64_t file_size, const std::string& where) {
  if (data_start > file_size) return invalid_argument(where + ": shorter than its header");
  MOESTRO_ASSIGN_OR_RETURN(const json parsed, model::parse_json_object(header, where));
  std::vector<SourceTensor> tensors;
  for (const auto& [name, entry] : parsed.items()) {
    if (name == "__metadata__") continue;  // free text for people
    SourceTensor tensor;
    tensor.name = name;
    if (Status status = parse_entry(entry, data_start, file_size, tensor); !status.is_ok())
      return status.with_context(where + ": tensor " + in_quotes(name));
    tensors.push_back(std::move(tensor));
  }
  MOESTRO_RETURN_IF_ERROR(check_cover(tensors, data_start, file_size, where));
  return tensors;
}

Result<std::vector<SourceTensor>> read_safetensors_header(const File& file) {
  static_assert(std::endian::native == std::endian::little, "safetensors and packs are little-endian");
  MOESTRO_RETURN_IF_ERROR(check_is_no_lfs_pointer(file));
  MOESTRO_ASSIGN_OR_RETURN(const uint64_t size, file.size());
  uint64_t header_bytes = 0;
  if (size < sizeof header_bytes) return invalid_argument(file.path() + ": too short for a safetensors file");
  MOESTRO_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(&header_bytes, 1))));
  if (header_bytes > kHeaderBytesMax || header_bytes > size - sizeof header_bytes)
    return invalid_argument(file.path() + ": says that its header has " + std::to_string(header_bytes) +
                            " bytes; the file is truncated or not a safetensors file");
  std::string header(header_bytes, '\0');
  MOESTRO_RETURN_IF_ERROR(file.read_at(sizeof header_bytes, std::as_writable_bytes(std::span(header))));
  return parse_safetensors_header(header, sizeof header_bytes + header_bytes, size, file.path());
}

}  // namespace moestro::store

#include "store/pack/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "common/model/strict_json.h"

namespace moestro::store {
namespace {

using model::in_quotes;

constexpr uint64_t kEntriesMax = 1 << 16, kTensorsMax = 1 << 20;
constexpr uint64_t kNameMax = 1 << 16, kTextMax = 64 << 20;
// Of all lists together. The largest vocabularies with their scores, types and merges have some 1.3 million; here an
// element takes up to 32 bytes, of which a file may need one.
constexpr uint64_t kElementsMax = 1 << 23;
constexpr uint32_t kDimensionsMax = 4, kVersion = 3;
constexpr uint64_t kValuesMax = uint64_t{1} << 50;  // of a tensor: far from where sizes overflow
constexpr int64_t kAlignment = 32, kAlignmentMax = 1 << 20;
constexpr std::string_view kAlignmentKey = "general.alignment";

enum class Kind : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kText, kArray, kU64, kI64, kF64 };

static_assert(std::endian::native == std::endian::little, "GGUF files and packs are little-endian");

/// Reads what follows; after the end, or after an error, everything is 0 and the first error stays.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, uint64_t file_size) : bytes_(bytes), file_size_(file_size) {}

  template <typename T>
  T take() {
    T value{};
    if (has(sizeof value)) std::memcpy(&value, bytes_.data() + at_, sizeof value), at_ += sizeof value;
    return value;
  }
  std::string take_text(uint64_t bytes_max, const char* what) {
    const auto length = take<uint64_t>();
    if (failed()) return {};
    if (length > bytes_max) {
      refuse(std::string(what) + " of " + std::to_string(length) + " bytes");
      return {};
    }
    if (!has(length)) return {};
    std::string text(reinterpret_cast<const char*>(bytes_.data() + at_), length);
    at_ += length;
    return text;
  }
  /// Whether `count` things of at least `each` bytes can follow: what a file says of itself allocates no more than it
  /// has.
  bool fits(uint64_t count, uint64_t each) const { return count <= (file_size_ - at_) / each; }
  /// Counts elements of lists: whether those that have been asked for may all be held.
  bool may_hold(uint64_t count) {
    if (count > kElementsMax - elements_) return false;
    elements_ += count;
    return true;
  }
  void refuse(std::string why) {
    if (!failed()) error_ = std::move(why);
  }
  bool failed() const { return needs_more_ || !error_.empty(); }
  bool needs_more() const { return needs_more_; }
  const std::string& error() const { return error_; }
  uint64_t at() const { return at_; }

 private:
  bool has(uint64_t count) {
    if (failed()) return false;
    if (count <= bytes_.size() - at_) return true;
    if (count > file_size_ - at_) error_ = "the file ends within its header";
    else needs_more_ = true;
    return false;
  }
  std::span<const std::byte> bytes_;
  uint64_t file_size_, at_ = 0, elements_ = 0;
  bool needs_more_ = false;
  std::string error_;
};

uint64_t bytes_of(Kind kind) {
  switch (kind) {
    case Kind::kU8:
    case Kind::kI8:
    case Kind::kBool: return 1;
    case Kind::kU16:
    case Kind::kI16: return 2;
    case Kind::kU32:
    case Kind::kI32:
    case Kind::kF32: return 4;
    case Kind::kU64:
    case Kind::kI64:
    case Kind::kF64: return 8;
    case Kind::kText: return 8;  // its length
    case Kind::kArray: break;
  }
  return 0;
}

int64_t take_integer(Cursor& in, Kind kind) {
  switch (kind) {
    case Kind::kU8: return in.take<uint8_t>();
    case Kind::kI8: return in.take<int8_t>();
    case Kind::kU16: return in.take<uint16_t>();
    case Kind::kI16: return in.take<int16_t>();
    case Kind::kU32: return in.take<uint32_t>();
    case Kind::kI32: return in.take<int32_t>();
    case Kind::kI64: return in.take<int64_t>();
    default: break;
  }
  const auto value = in.take<uint64_t>();
  if (value > static_cast<uint64_t>(INT64_MAX)) in.refuse("a number above 2^63");
  return static_cast<int64_t>(value);
}

bool take_flag(Cursor& in) {
  const auto value = in.take<uint8_t>();
  if (value > 1) in.refuse("a truth value of " + std::to_string(value));
  return value == 1;
}

double take_number(Cursor& in, Kind kind) {
  return kind == Kind::kF32 ? static_cast<double>(in.take<float>()) : in.take<double>();
}

bool is_number(Kind kind) { return kind == Kind::kF32 || kind == Kind::kF64; }

template <typename T, typename Take>
GgufValue take_all(Cursor& in, uint64_t count, const Take& take) {
  std::vector<T> all;  // it grows with what is there: a count may lie
  for (uint64_t i = 0; i < count && !in.failed(); ++i) all.push_back(take());
  return all;
}

GgufValue take_array(Cursor& in) {
  const auto kind = static_cast<Kind>(in.take<uint32_t>());
  const auto count = in.take<uint64_t>();
  if (in.failed()) return {};
  const uint64_t each = bytes_of(kind);
  if (kind == Kind::kArray) return in.refuse("an array of arrays"), GgufValue();
  if (each == 0) return in.refuse("values of kind " + std::to_string(static_cast<uint32_t>(kind))), GgufValue();
  if (!in.fits(count, each)) return in.refuse("an array of " + std::to_string(count) + " values"), GgufValue();
  if (!in.may_hold(count))
    return in.refuse("lists of more than " + std::to_string(kElementsMax) + " values"), GgufValue();
  if (kind == Kind::kText)
    return take_all<std::string>(in, count, [&] { return in.take_text(kTextMax, "a text"); });
  if (kind == Kind::kBool) return take_all<bool>(in, count, [&] { return take_flag(in); });
  if (is_number(kind)) return take_all<double>(in, count, [&] { return take_number(in, kind); });
  return take_all<int64_t>(in, count, [&] { return take_integer(in, kind); });
}

GgufValue take_value(Cursor& in) {
  const auto kind = static_cast<Kind>(in.take<uint32_t>());
  if (in.failed()) return {};
  if (kind == Kind::kArray) return take_array(in);
  if (kind == Kind::kText) return in.take_text(kTextMax, "a text");
  if (kind == Kind::kBool) return take_flag(in);
  if (is_number(kind)) return take_number(in, kind);
  if (bytes_of(kind) == 0)
    return in.refuse("a value of kind " + std::to_string(static_cast<uint32_t>(kind))), GgufValue();
  return take_integer(in, kind);
}

void take_metadata(Cursor& in, uint64_t count, GgufMetadata& out) {
  for (uint64_t i = 0; i < count && !in.failed(); ++i) {
    const std::string key = in.take_text(kNameMax, "a key");
    if (in.failed()) return;
    GgufValue value = take_value(in);
    if (in.failed()) return;
    if (key.empty() || !out.values.emplace(key, std::move(value)).second)
      in.refuse("the key " + in_quotes(key) + " is empty or given twice");
  }
}

/// Fills shape, type and size.
std::string measure(GgufTensor& t, const std::vector<uint64_t>& dimensions, uint32_t type) {
  t.type = gguf_type(type);
  if (t.type == nullptr) return "has the unknown type " + std::to_string(type);
  uint64_t values = 1;
  for (const uint64_t n : dimensions) {
    if (n == 0 || n > kValuesMax / values) return "has a dimension of " + std::to_string(n);
    values *= n;
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(n));
  }
  if (t.shape.back() % t.type->columns != 0)
    return "has rows of " + std::to_string(t.shape.back()) + " values, which are not whole blocks of " +
           std::to_string(t.type->columns) + " (" + t.type->name + ")";
  t.bytes = values / static_cast<uint64_t>(t.type->columns) * static_cast<uint64_t>(t.type->bytes);
  return {};
}

/// Offsets are still those from the start of the tensors' bytes.
void take_tensors(Cursor& in, uint64_t count, std::vector<GgufTensor>& out) {
  std::set<std::string> names;
  for (uint64_t i = 0; i < count && !in.failed(); ++i) {
    GgufTensor t;
    t.name = in.take_text(kNameMax, "a tensor's name");
    const auto dimension_count = in.take<uint32_t>();
    if (in.failed()) return;
    if (t.name.empty() || !names.insert(t.name).second)
      return in.refuse("the tensor " + in_quotes(t.name) + " has no name or is given twice");
    if (dimension_count < 1 || dimension_count > kDimensionsMax)
      return in.refuse("tensor " + in_quotes(t.name) + " has " + std::to_string(dimension_count) + " dimensions");
    std::vector<uint64_t> dimensions;
    for (uint32_t d = 0; d < dimension_count; ++d) dimensions.push_back(in.take<uint64_t>());
    const auto type = in.take<uint32_t>();
    t.offset = in.take<uint64_t>();
    if (in.failed()) return;
    if (const std::string why = measure(t, dimensions, type); !why.empty())
      return in.refuse("tensor " + in_quotes(t.name) + " " + why);
    out.push_back(std::move(t));
  }
}

/// Makes offsets those in the file. The tensors' bytes follow one another, each padded to the alignment.
Status place(std::vector<GgufTensor>& tensors, uint64_t header_end, uint64_t alignment, uint64_t file_size,
             const std::string& where) {
  const auto padded = [&](uint64_t n) { return (n + alignment - 1) / alignment * alignment; };
  const uint64_t start = padded(header_end);
  std::vector<GgufTensor*> order;
  for (GgufTensor& t : tensors) order.push_back(&t);
  std::ranges::sort(order, {}, &GgufTensor::offset);
  uint64_t end = start;
  for (GgufTensor* t : order) {
    const std::string label = where + ": tensor " + in_quotes(t->name);
    if (t->offset % alignment != 0)
      return invalid_argument(label + " begins at " + std::to_string(t->offset) + ", which is no multiple of " +
                              std::to_string(alignment));
    if (t->offset > file_size || t->bytes > file_size || start + t->offset > file_size - t->bytes)
      return invalid_argument(label + " ends beyond the file; it is truncated: download it again");
    t->offset += start;
    if (t->offset < end) return invalid_argument(label + " overlaps another one");
    if (t->offset > padded(end)) return invalid_argument(where + ": bytes before tensor " + in_quotes(t->name) +
                                                         " belong to no tensor");
    end = t->offset + t->bytes;
  }
  if (!tensors.empty() && file_size > padded(end))
    return invalid_argument(where + ": " + std::to_string(file_size - end) + " bytes at the end belong to no tensor");
  return Status::ok();
}

template <typename T>
Result<const T*> find(const GgufMetadata& m, std::string_view key, const char* what) {
  const auto found = m.values.find(key);
  if (found == m.values.end()) return static_cast<const T*>(nullptr);
  if (const T* value = std::get_if<T>(&found->second)) return value;
  return invalid_argument("metadata " + in_quotes(key) + " is not " + what);
}

template <typename T>
Result<std::optional<T>> find_one(const GgufMetadata& m, std::string_view key, const char* what) {
  MOESTRO_ASSIGN_OR_RETURN(const T* value, find<T>(m, key, what));
  return value == nullptr ? std::optional<T>() : std::optional<T>(*value);
}

}  // namespace

Result<std::optional<int64_t>> GgufMetadata::integer(std::string_view key) const {
  return find_one<int64_t>(*this, key, "a whole number");
}
Result<std::optional<bool>> GgufMetadata::flag(std::string_view key) const {
  return find_one<bool>(*this, key, "true or false");
}
Result<std::optional<std::string>> GgufMetadata::text(std::string_view key) const {
  return find_one<std::string>(*this, key, "a text");
}
Result<std::optional<double>> GgufMetadata::number(std::string_view key) const {
  const auto found = values.find(key);
  if (found != values.end())
    if (const auto* whole = std::get_if<int64_t>(&found->second)) return std::optional(static_cast<double>(*whole));
  auto value = find_one<double>(*this, key, "a number");
  if (value && *value && !std::isfinite(**value))
    return invalid_argument("metadata " + in_quotes(key) + " is infinite or not a number");
  return value;
}
Result<const std::vector<std::string>*> GgufMetadata::texts(std::string_view key) const {
  return find<std::vector<std::string>>(*this, key, "a list of texts");
}
Result<const std::vector<int64_t>*> GgufMetadata::integers(std::string_view key) const {
  return find<std::vector<int64_t>>(*this, key, "a list of whole numbers");
}
Result<const std::vector<double>*> GgufMetadata::numbers(std::string_view key) const {
  MOESTRO_ASSIGN_OR_RETURN(const auto* list, find<std::vector<double>>(*this, key, "a list of numbers"));
  if (list != nullptr && !std::ranges::all_of(*list, [](double n) { return std::isfinite(n); }))
    return invalid_argument("metadata " + in_quotes(key) + " holds a number that is infinite or none");
  return list;
}

Result<GgufParse> parse_gguf_header(std::span<const std::byte> bytes, uint64_t file_size, const std::string& where) {
  GgufParse out;
  Cursor in(bytes, file_size);
  constexpr uint32_t kGgufMagic = 0x46554747;  // "GGUF"
  const auto magic = in.take<uint32_t>(), version = in.take<uint32_t>();
  if (!in.failed() && magic != kGgufMagic) return invalid_argument(where + ": is not a GGUF file");
  if (!in.failed() && version == __builtin_bswap32(kVersion))
    return unsupported(where + ": is a big-endian GGUF file; only little-endian ones are read");
  if (!in.failed() && version != kVersion)
    return unsupported(where + ": is GGUF of version " + std::to_string(version) + "; version 3 is read");
  const auto tensors = in.take<uint64_t>(), entries = in.take<uint64_t>();
  if (!in.failed() && (tensors > kTensorsMax || entries > kEntriesMax))
    in.refuse("it says that it has " + std::to_string(tensors) + " tensors and " + std::to_string(entries) +
              " entries of metadata");
  take_metadata(in, entries, out.header.metadata);
  take_tensors(in, tensors, out.header.tensors);
  out.needs_more = in.needs_more();
  if (out.needs_more) return out;
  if (in.failed()) return invalid_argument(where + ": " + in.error() + "; the file is damaged or not GGUF");
  auto alignment = out.header.metadata.integer(kAlignmentKey);
  if (!alignment) return alignment.status().with_context(where);
  const int64_t align = alignment->value_or(kAlignment);
  if (align < 1 || align > kAlignmentMax || align % 8 != 0)
    return invalid_argument(where + ": metadata " + in_quotes(kAlignmentKey) + " is " + std::to_string(align));
  MOESTRO_RETURN_IF_ERROR(place(out.header.tensors, in.at(), static_cast<uint64_t>(align), file_size, where));
  return out;
}

}  // namespace moestro::store

#include "store/pack/manifest_check.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "common/dense_layout.h"
#include "common/expert_layout.h"
#include "common/model/strict_json.h"
#include "store/pack/shards.h"

namespace moestro::store {
namespace {

constexpr uint64_t kFileBytesMax = uint64_t{1} << 50;
constexpr size_t kTensorDimensionsMax = 4;

Status bad(const std::string& what) { return corrupt("manifest: " + what); }

bool has_these_tiles(const Manifest& m) {
  const auto same = [&](DType down) { return moestro::has_these_tiles(m.layout_id, down); };
  return std::ranges::all_of(m.expert_precisions, same) &&
         std::ranges::all_of(m.expert_formats, same, &ExpertFormats::down);
}

Status check_lists(const Manifest& m) {
  if (!has_these_tiles(m))
    return unsupported("manifest: expert layout " + std::to_string(m.layout_id) + "; this build reads layout " +
                       std::to_string(kExpertLayoutId) + "; pack the model again");
  std::set<std::string> names;
  for (const std::string& file : m.files)
    if (!is_plain_file_name(file) || file == "manifest" || !names.insert(file).second)
      return bad("file name " + model::in_quotes(file) + " is not allowed");
  for (const CopiedFile& copied : m.copied)
    if (!is_plain_file_name(copied.name) || copied.name == "manifest" || copied.bytes > kCopiedBytesMax ||
        !names.insert(copied.name).second)
      return bad("name or size of the copied file " + model::in_quotes(copied.name) + " is not allowed");
  std::set<DType> precisions;
  for (const DType d : m.expert_precisions)
    if (!is_known(d) || !precisions.insert(d).second) return bad("list of precisions");
  if (precisions.contains(DType::kMixed) == m.expert_formats.empty()) return bad("formats of mixed experts");
  for (const ExpertFormats& f : m.expert_formats)
    for (const DType d : {f.gate, f.up, f.down})
      if (!is_known(d) || d == DType::kMixed || has_parameters(d)) return bad("format of mixed experts");
  return m.expert_precisions.empty() ? bad("no precisions") : Status::ok();
}

Status check_slices(const Manifest& m, uint32_t index) {
  const Blob& b = m.blobs[index];
  const std::string label = "blob " + std::to_string(index);
  uint64_t sum = 0;
  for (const Slice& s : b.slices) {
    if (s.length == 0 || s.length > kSliceBytesMax || s.length % kDiskAlign != 0)
      return bad(label + ": length of a slice");
    if (s.offset % kDiskAlign != 0 || s.offset > kFileBytesMax) return bad(label + ": offset of a slice");
    if (s.file >= m.files.size()) return bad(label + ": a slice in a file that is not listed");
    if (s.directory >= kDirectoriesMax) return bad(label + ": directory of a slice");
    sum += s.length;
  }
  if (b.slices.empty() || sum != b.length) return bad(label + ": length is not that of its slices");
  return Status::ok();
}

// Dense blobs, then experts: by precision, layer, number, none missing, so that their count follows from the last one.
Status check_blob_order(const Manifest& m) {
  const auto first =
      std::find_if(m.blobs.begin(), m.blobs.end(), [](const Blob& b) { return b.kind == BlobKind::kExpert; });
  const auto count = static_cast<uint64_t>(m.blobs.end() - first);
  if (count == 0) return bad("no experts");
  const uint64_t layers = uint64_t{m.blobs.back().moe_layer.value} + 1,
                 experts = uint64_t{m.blobs.back().expert.value} + 1;
  if (count != layers * experts * m.expert_precisions.size()) return bad("number of experts");
  if (!m.expert_formats.empty() && m.expert_formats.size() != layers) return bad("number of formats of mixed experts");
  for (uint64_t i = 0; i < count; ++i) {
    const Blob& b = *(first + static_cast<ptrdiff_t>(i));
    const bool in_order = b.kind == BlobKind::kExpert && b.expert.value == i % experts &&
                          b.moe_layer.value == i / experts % layers &&
                          b.precision == m.expert_precisions[i / experts / layers];
    if (!in_order)
      return bad("order of the experts, at blob " +
                 std::to_string(first - m.blobs.begin() + static_cast<ptrdiff_t>(i)));
  }
  return Status::ok();
}

Status check_directories(const Manifest& m) {
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> directories(m.files.size(), kNone);
  for (const Blob& b : m.blobs)
    for (const Slice& s : b.slices) {
      uint32_t& known = directories[s.file];
      if (known != kNone && known != s.directory) return bad("file " + m.files[s.file] + " in two directories");
      known = s.directory;
    }
  return Status::ok();
}

Status check_slice_overlap(const Manifest& m) {
  std::vector<std::tuple<uint32_t, uint32_t, uint64_t, uint64_t>> ranges;  // directory, file, begin, end
  for (const Blob& b : m.blobs)
    for (const Slice& s : b.slices) ranges.emplace_back(s.directory, s.file, s.offset, s.offset + s.length);
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i) {
    const auto& [d0, f0, begin0, end0] = ranges[i - 1];
    const auto& [d1, f1, begin1, end1] = ranges[i];
    if (d0 == d1 && f0 == f1 && begin1 < end0)
      return bad("slices overlap in " + m.files[f1] + " at byte " + std::to_string(begin1));
  }
  return Status::ok();
}

/// Bytes of a tensor, or nothing where its shape makes no sense or overflows.
std::optional<uint64_t> tensor_bytes(const PackedTensor& t) {
  if (t.shape.empty() || t.shape.size() > kTensorDimensionsMax) return std::nullopt;
  constexpr int64_t kElementsMax = int64_t{1} << 50;  // far from where the sums below overflow
  int64_t rows = 1;
  for (size_t i = 0; i < t.shape.size(); ++i)
    if (t.shape[i] < 1 || t.shape[i] > kElementsMax / rows) return std::nullopt;
    else if (i + 1 < t.shape.size()) rows *= t.shape[i];
  if ((has_parameters(t.dtype) || is_blocks(t.dtype)) && t.shape.size() != 2) return std::nullopt;
  if (t.shape.back() % block_shape(t.dtype).columns != 0) return std::nullopt;
  return static_cast<uint64_t>(dense_bytes(t.dtype, rows, t.shape.back()));
}

Status check_tensors(const Manifest& m) {
  std::set<std::string> names;
  std::vector<std::tuple<uint32_t, uint64_t, uint64_t>> ranges;  // blob, begin, end
  for (const PackedTensor& t : m.tensors) {
    const std::string label = "tensor " + model::in_quotes(t.name);
    if (t.name.empty() || !names.insert(t.name).second) return bad(label + ": name is empty or given twice");
    if (!is_known(t.dtype) || t.dtype == DType::kMixed) return bad(label + ": format");
    if (t.blob >= m.blobs.size() || m.blobs[t.blob].kind != BlobKind::kDense) return bad(label + ": blob");
    const auto bytes = tensor_bytes(t);
    uint64_t end = 0;
    if (!bytes || t.offset % kPartAlign != 0 || __builtin_add_overflow(t.offset, *bytes, &end) ||
        end > m.blobs[t.blob].length)
      return bad(label + ": does not fit in its blob");
    ranges.emplace_back(t.blob, t.offset, end);
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (std::get<0>(ranges[i]) == std::get<0>(ranges[i - 1]) && std::get<1>(ranges[i]) < std::get<2>(ranges[i - 1]))
      return bad("tensors overlap in blob " + std::to_string(std::get<0>(ranges[i])));
  return Status::ok();
}

}  // namespace

bool is_plain_file_name(const std::string& name) {
  if (name.empty() || name.size() > 200 || name == "." || name == "..") return false;
  return std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '/' && c != '\\'; });
}

Status check_manifest(const Manifest& m) {
  MOESTRO_RETURN_IF_ERROR(check_lists(m));
  for (uint32_t i = 0; i < m.blobs.size(); ++i) {
    if (m.blobs[i].kind != BlobKind::kDense && m.blobs[i].kind != BlobKind::kExpert)
      return bad("kind of blob " + std::to_string(i));
    if (!is_known(m.blobs[i].precision)) return bad("precision of blob " + std::to_string(i));
    MOESTRO_RETURN_IF_ERROR(check_slices(m, i));
  }
  MOESTRO_RETURN_IF_ERROR(check_blob_order(m));
  MOESTRO_RETURN_IF_ERROR(check_directories(m));
  MOESTRO_RETURN_IF_ERROR(check_slice_overlap(m));
  return check_tensors(m);
}

}  // namespace moestro::store

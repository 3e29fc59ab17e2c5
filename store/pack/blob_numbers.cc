#include "store/pack/blob_numbers.h"

#include <algorithm>

#include "common/dense_layout.h"
#include "common/model/model_spec.h"
#include "store/pack/finite.h"
#include "store/pack/manifest_check.h"

namespace moestro::store {

std::vector<BlobNumbers::Region> BlobNumbers::expert_regions(const ExpertLayout& layout) {
  std::vector<Region> regions;
  const DType d = layout.dtype();
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    const auto add = [&](int64_t begin, int64_t length, bool parameters, const char* what) {
      regions.push_back({static_cast<uint64_t>(t.offset + begin), static_cast<uint64_t>(length), d, parameters, what});
    };
    if (is_quantised(d)) {
      add(t.gate_scales, t.ffn * parameter_bytes(d, layout.hidden()), true, "gate");
      add(t.up_scales, t.ffn * parameter_bytes(d, layout.hidden()), true, "up");
      add(t.down_scales, layout.hidden() * parameter_bytes(d, t.ffn), true, "down");
    } else {
      add(t.gate, t.ffn * row_bytes(d, layout.hidden()), false, "gate");
      add(t.up, t.ffn * row_bytes(d, layout.hidden()), false, "up");
      add(t.down, layout.hidden() * row_bytes(d, t.ffn), false, "down");
    }
  }
  return regions;
}

void BlobNumbers::add_tensor(const PackedTensor& t) {
  int64_t values = 1;
  for (const int64_t n : t.shape) values *= n;
  Region region{t.offset, static_cast<uint64_t>(values), t.dtype, is_quantised(t.dtype), t.name.c_str()};
  if (is_quantised(t.dtype)) {
    const int64_t cols = t.shape.back(), rows = values / cols;
    region.offset += static_cast<uint64_t>(dense_parameters_offset(t.dtype, rows, cols));
    region.length = static_cast<uint64_t>(rows * parameter_bytes(t.dtype, cols));
  } else {
    region.length *= static_cast<uint64_t>(dtype_bytes(t.dtype));
  }
  dense_[t.blob].push_back(region);
}

Result<BlobNumbers> BlobNumbers::of(const Manifest& manifest) {
  MOESTRO_ASSIGN_OR_RETURN(const model::ModelDescription description, model::describe_model(manifest.config_json, manifest.generation_config_json));
  BlobNumbers numbers(manifest);
  for (const PackedTensor& t : manifest.tensors) numbers.add_tensor(t);
  numbers.experts_.resize(static_cast<size_t>(DType::kInt4) + 1);
  if (description.spec.moe_layers() == 0) return numbers;
  const auto& expert = description.spec.moe().expert;
  for (const DType d : manifest.expert_precisions) numbers.experts_[static_cast<size_t>(d)] = expert_regions({expert.hidden, expert.ffn, d});
  return numbers;
}

const std::vector<BlobNumbers::Region>& BlobNumbers::regions_of(uint32_t blob) const {
  const Blob& b = manifest_->blobs[blob];
  return b.kind == BlobKind::kExpert ? experts_[static_cast<size_t>(b.precision)] : dense_[blob];
}

Status BlobNumbers::check(uint32_t blob, uint64_t offset, std::span<const std::byte> bytes) const {
  for (const Region& r : regions_of(blob)) {
    const uint64_t begin = std::max(offset, r.offset), end = std::min(offset + bytes.size(), r.offset + r.length);
    if (begin >= end) continue;
    MOESTRO_RETURN_IF_ERROR(check_region(blob, r, begin - r.offset, bytes.subspan(begin - offset, end - begin)));
  }
  return Status::ok();
}

Status BlobNumbers::check_region(uint32_t blob, const Region& r, uint64_t at, std::span<const std::byte> bytes) const {
  const auto each = static_cast<uint64_t>(r.parameters ? group_parameters(r.dtype) * 2 : dtype_bytes(r.dtype));
  const auto bad = r.parameters ? find_group_not_finite(r.dtype, bytes) : find_not_finite(r.dtype, bytes);
  if (!bad) return Status::ok();
  const std::string number = std::to_string(at / each + *bad);
  return corrupt(blob_label(*manifest_, blob) + ", " + r.what + ": " +
                 (r.parameters ? "the scale or offset of group " + number + " gives numbers that are infinite or not numbers"
                               : "value " + number + " is infinite or not a number") +
                 ", though its checksum is right: it was written so; pack the model again");
}

}  // namespace moestro::store

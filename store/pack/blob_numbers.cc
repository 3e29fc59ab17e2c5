#include "store/pack/blob_numbers.h"

#include <algorithm>
#include <optional>

#include "common/dense_layout.h"
#include "common/formats/blocks.h"
#include "common/model/model_spec.h"
#include "store/pack/finite.h"
#include "store/pack/manifest_check.h"

namespace moestro::store {

// What says whether a matrix' numbers are finite: its values; the parameters of its groups; or its exponents, those of
// the codes and those of the exceptions.
void BlobNumbers::add_matrix(std::vector<Region>& to, DType dtype, int64_t values, int64_t parameters, int64_t rows,
                             int64_t cols, const char* what) {
  const auto add = [&](int64_t begin, int64_t length, Kind kind) {
    to.push_back({static_cast<uint64_t>(begin), static_cast<uint64_t>(length), dtype, kind, what});
  };
  if (dtype == DType::kBF16In12) {
    const int64_t room = bf16_in_12::exceptions_max(rows * cols);
    add(parameters, bf16_in_12::kCodes, Kind::kExponentsOfCodes);
    add(parameters + bf16_in_12::exponents_bytes(rows, cols) - room, room, Kind::kExponentsOfExceptions);
  } else if (is_quantised(dtype)) {
    add(parameters, rows * parameter_bytes(dtype, cols), Kind::kGroupParameters);
  } else {
    add(values, rows * row_bytes(dtype, cols), is_blocks(dtype) ? Kind::kBlocks : Kind::kValues);
  }
}

std::vector<BlobNumbers::Region> BlobNumbers::expert_regions(const ExpertLayout& layout) {
  std::vector<Region> regions;
  const auto& [gate, up, down] = layout.formats();
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    const ExpertTile t = layout.tile(i);
    if (layout.is_gated())
      add_matrix(regions, gate, t.offset + t.gate, t.offset + t.gate_scales, t.ffn, layout.hidden(), "gate");
    add_matrix(regions, up, t.offset + t.up, t.offset + t.up_scales, t.ffn, layout.hidden(), "up");
    add_matrix(regions, down, t.offset + t.down, t.offset + t.down_scales, layout.hidden(), t.ffn, "down");
  }
  if (!layout.has_bias()) return regions;
  const ExpertBiases bias = layout.biases();
  if (layout.is_gated()) add_matrix(regions, DType::kF32, bias.gate, 0, 1, layout.ffn(), "gate bias");
  add_matrix(regions, DType::kF32, bias.up, 0, 1, layout.ffn(), "up bias");
  add_matrix(regions, DType::kF32, bias.down, 0, 1, layout.hidden(), "down bias");
  return regions;
}

void BlobNumbers::add_tensor(const PackedTensor& t) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < t.shape.size(); ++i) rows *= t.shape[i];
  const auto offset = static_cast<int64_t>(t.offset);
  add_matrix(dense_[t.blob], t.dtype, offset, offset + dense_parameters_offset(t.dtype, rows, t.shape.back()), rows,
             t.shape.back(), t.name.c_str());
}

Result<BlobNumbers> BlobNumbers::of(const Manifest& manifest) {
  MOESTRO_ASSIGN_OR_RETURN(const model::ModelDescription description,
                           model::describe_model(manifest.config_json, manifest.generation_config_json));
  BlobNumbers numbers(manifest);
  for (const PackedTensor& t : manifest.tensors) numbers.add_tensor(t);
  numbers.experts_.resize(kDTypes);
  if (description.spec.moe_layers() == 0) return numbers;
  const auto& expert = description.spec.moe().expert;
  for (const DType d : manifest.expert_precisions) {
    MOESTRO_ASSIGN_OR_RETURN(const auto layouts, manifest.expert_layouts(expert, d));
    for (const ExpertLayout& layout : layouts)
      numbers.experts_[static_cast<size_t>(d)].push_back(expert_regions(layout));
  }
  return numbers;
}

const std::vector<BlobNumbers::Region>& BlobNumbers::regions_of(uint32_t blob) const {
  const Blob& b = manifest_->blobs[blob];
  return b.kind == BlobKind::kExpert ? experts_[static_cast<size_t>(b.precision)][b.moe_layer.value] : dense_[blob];
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
  std::optional<size_t> bad;
  uint64_t each = 1;
  const char* number = r.kind == Kind::kExponentsOfCodes ? "the exponent of code " : "the exponent of exception ";
  const char* fault = " is that of numbers that are infinite or not numbers";
  switch (r.kind) {
    case Kind::kValues:
      bad = find_not_finite(r.dtype, bytes), each = static_cast<uint64_t>(dtype_bytes(r.dtype));
      number = "value ", fault = " is infinite or not a number";
      break;
    case Kind::kGroupParameters:
      bad = find_group_not_finite(r.dtype, bytes), each = static_cast<uint64_t>(group_parameters(r.dtype)) * 2;
      number = "the scale or offset of group ", fault = " gives numbers that are infinite or not numbers";
      break;
    case Kind::kBlocks:
      bad = formats::find_block_not_finite(r.dtype, at, bytes), at = 0;  // it counts from the region's start
      number = "a value or scale of block ", fault = " gives numbers that are infinite or not numbers";
      break;
    case Kind::kExponentsOfCodes:
    case Kind::kExponentsOfExceptions:
      bad = find_exponent_not_finite(bytes);
      break;
  }
  if (!bad) return Status::ok();
  return corrupt(blob_label(*manifest_, blob) + ", " + r.what + ": " + number + std::to_string(at / each + *bad) +
                 fault + ", though its checksum is right: it was written so; pack the model again");
}

}  // namespace moestro::store

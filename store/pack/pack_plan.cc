#include "store/pack/pack_plan.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "common/dense_layout.h"
#include "store/pack/dense_source.h"
#include "store/pack/requantise.h"

namespace moestro::store {
namespace {

class Planner {
 public:
  Planner(const Checkpoint& checkpoint, const PackPlanOptions& options)
      : checkpoint_(checkpoint), options_(options), dealt_(options.shares.size()) {}

  PackPlan plan() {
    Manifest& m = plan_.manifest;
    m.layout_id = kExpertLayoutId;
    m.model_name = options_.model_name;
    m.config_json = checkpoint_.config_json();
    m.generation_config_json = checkpoint_.generation_config_json();
    m.expert_precisions = options_.experts;
    if (std::ranges::find(options_.experts, DType::kMixed) != options_.experts.end())
      m.expert_formats = checkpoint_.expert_formats();
    plan_dense();
    for (const DType precision : options_.experts) plan_experts(precision);
    for (const uint64_t bytes : plan_.file_bytes) plan_.total_bytes += bytes;
    return std::move(plan_);
  }

 private:
  // One blob for embedding and last norm, one per layer, one for the head: tensors whose names share their layer's
  // prefix.
  void plan_dense() {
    open_file("dense.bin");
    const auto& dense = checkpoint_.model().dense;
    std::vector<std::string> groups;
    for (uint32_t i = 0; i < dense.size(); ++i) {
      const std::string group = group_of(dense[i].name);
      const auto it = std::find(groups.begin(), groups.end(), group);
      const auto blob = static_cast<uint32_t>(it - groups.begin());
      if (it == groups.end()) {
        groups.push_back(group);
        plan_.origins.emplace_back();
        plan_.manifest.blobs.push_back({BlobKind::kDense, {}, {}, options_.dense.value_or(DType::kMixed), 0, {}});
      }
      place_tensor(i, blob);
    }
    for (Blob& blob : plan_.manifest.blobs) {
      blob.length = static_cast<uint64_t>(round_up(static_cast<int64_t>(blob.length), kDiskAlign));
      append_slices(blob, blob.length);
    }
  }

  static std::string group_of(const std::string& name) {
    if (!name.starts_with("layers.")) return name.starts_with("head.") ? "head" : "embed";
    return name.substr(0, name.find('.', sizeof("layers.") - 1));
  }

  void place_tensor(uint32_t index, uint32_t blob) {
    const model::DenseTensor& source = checkpoint_.model().dense[index];
    const DType dtype = packed_dtype(source);
    PackedTensor tensor{source.name, dtype, source.shape, blob, plan_.manifest.blobs[blob].length};
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < source.shape.size(); ++i) rows *= source.shape[i];
    const int64_t bytes = dense_bytes(dtype, rows, source.shape.back());
    plan_.manifest.blobs[blob].length += static_cast<uint64_t>(round_up(bytes, kPartAlign));
    plan_.origins[blob].tensors.push_back(index);
    plan_.manifest.tensors.push_back(std::move(tensor));
  }

  DType packed_dtype(const model::DenseTensor& source) const {
    if (source.exact) return DType::kF32;
    const DType own = dense_source_dtype(checkpoint_, source);
    const std::optional<DType> wanted = is_matrix_of_a_product(source) ? options_.dense : options_.dense_rest;
    const DType dtype = wanted ? dense_format(own, *wanted) : own;
    return is_blocks(dtype) && is_read_across(source) ? DType::kF32 : dtype;
  }

  void plan_experts(DType precision) {
    const model::ExpertSpec& spec = checkpoint_.model().spec.moe().expert;
    std::vector<ExpertLayout> layouts;
    for (const ExpertFormats& own : checkpoint_.expert_formats())
      layouts.emplace_back(spec.hidden, spec.ffn, precision == DType::kMixed ? own : ExpertFormats(precision),
                           spec.bias, spec.is_gated());
    plan_.layouts.push_back(layouts);
    int part = 0;
    open_expert_file(precision, part);
    const auto& experts = checkpoint_.model().experts;
    for (size_t i = 0; i < experts.size(); ++i) {
      const ExpertLayout& layout = layouts[experts[i].moe_layer.value];
      const auto bytes = static_cast<uint64_t>(layout.bytes());
      if (const uint64_t end = longest(); end > 0 && end + bytes > options_.file_bytes_max)
        open_expert_file(precision, ++part);
      Blob blob{BlobKind::kExpert, experts[i].moe_layer, experts[i].expert, precision, bytes, {}};
      for (int64_t t = 0; t < layout.tiles(); ++t) append_slices(blob, static_cast<uint64_t>(layout.tile(t).bytes));
      append_slices(blob, static_cast<uint64_t>(layout.bias_bytes()));
      plan_.manifest.blobs.push_back(std::move(blob));
      plan_.origins.push_back({static_cast<int64_t>(i), {}});
    }
  }

  void open_expert_file(DType precision, int part) {
    char number[16];
    std::snprintf(number, sizeof number, "%03d", part);
    open_file("experts-" + std::string(dtype_name(precision)) + "-" + number + ".bin");
  }

  /// A file of this name in every directory that gets anything to put into it.
  void open_file(std::string name) {
    name_ = std::move(name);
    open_.assign(options_.shares.size(), std::nullopt);
  }

  uint32_t file_in(uint32_t directory) {
    if (open_[directory]) return *open_[directory];
    std::string name = name_;  // names are unique in the whole pack
    if (directory > 0) name.insert(name.rfind('.'), "-shard" + std::to_string(directory));
    plan_.manifest.files.push_back(std::move(name));
    plan_.file_bytes.push_back(0);
    open_[directory] = static_cast<uint32_t>(plan_.manifest.files.size() - 1);
    return *open_[directory];
  }

  uint64_t longest() const {
    uint64_t bytes = 0;
    for (const auto& file : open_) bytes = std::max(bytes, file ? plan_.file_bytes[*file] : 0);
    return bytes;
  }

  /// The one that would have its fill last.
  uint32_t next_directory(uint64_t length) {
    uint32_t best = 0;
    for (uint32_t d = 1; d < dealt_.size(); ++d)
      if ((dealt_[d] + length) * options_.shares[best] < (dealt_[best] + length) * options_.shares[d]) best = d;
    dealt_[best] += length;
    return best;
  }

  /// `bytes` more of `blob`, in slices of at most 1 MiB, at the ends of the open files.
  void append_slices(Blob& blob, uint64_t bytes) {
    while (bytes > 0) {
      const auto length = static_cast<uint32_t>(std::min<uint64_t>(bytes, kSliceBytesMax));
      const uint32_t directory = next_directory(length), file = file_in(directory);
      blob.slices.push_back({directory, file, plan_.file_bytes[file], length, 0});
      plan_.file_bytes[file] += length;
      bytes -= length;
    }
  }

  const Checkpoint& checkpoint_;
  const PackPlanOptions& options_;
  PackPlan plan_;
  std::string name_;                          // of the open files
  std::vector<std::optional<uint32_t>> open_;  // by directory
  std::vector<uint64_t> dealt_;                // bytes, by directory
};

}  // namespace

const ExpertLayout& PackPlan::layout(const Blob& expert) const {
  const auto& listed = manifest.expert_precisions;
  const auto precision = std::find(listed.begin(), listed.end(), expert.precision);
  MOESTRO_CHECK(precision != listed.end(), "a precision of the plan");
  return layouts[static_cast<size_t>(precision - listed.begin())][expert.moe_layer.value];
}

PackPlan plan_pack(const Checkpoint& checkpoint, const PackPlanOptions& options) {
  return Planner(checkpoint, options).plan();
}

}  // namespace moestro::store

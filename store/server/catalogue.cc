#include "store/server/catalogue.h"

#include <algorithm>

namespace moestro::store {

namespace {

MachineBlob machine_blob(const Manifest& manifest, const Blob& blob) {
  const bool dense = blob.kind == BlobKind::kDense;
  return {dense, blob.length, blob_format(manifest.layout_id, static_cast<uint8_t>(blob.precision), dense)};
}

}  // namespace

Result<Catalogue> Catalogue::open(const std::vector<ModelSource>& sources) {
  if (sources.empty()) return invalid_argument("no model to serve: give --model NAME=PACK");
  Catalogue catalogue;
  for (const ModelSource& source : sources) {
    if (source.name.empty()) return invalid_argument("--model needs a name: NAME=PACK");
    if (std::ranges::any_of(catalogue.models_, [&](const Model& m) { return m.name == source.name; }))
      return invalid_argument("two models are named '" + source.name + "': names must differ");
    std::error_code error;
    const auto dir = std::filesystem::canonical(source.pack, error);
    if (error) return not_found("model '" + source.name + "': no pack at " + source.pack.string() + ": " + error.message());
    const auto known = std::ranges::find_if(catalogue.packs_, [&](const Pack& pack) { return pack.dir == dir; });
    uint32_t index = static_cast<uint32_t>(known - catalogue.packs_.begin());
    if (known == catalogue.packs_.end()) {
      auto added = catalogue.add_pack(dir);
      if (!added) return added.status().with_context("model '" + source.name + "'");
      index = *added;
    }
    catalogue.models_.push_back({source.name, index});
  }
  return catalogue;
}

Result<uint32_t> Catalogue::add_pack(const std::filesystem::path& dir) {
  Pack pack;
  pack.dir = dir;
  pack.first_entry = entries();
  MOESTRO_ASSIGN_OR_RETURN(pack.manifest, open_pack(dir));
  MOESTRO_ASSIGN_OR_RETURN(pack.first_file, files_.add(dir, pack.manifest));
  for (const Blob& blob : pack.manifest.blobs) {
    if (blob.kind == BlobKind::kDense) {
      pack.dense_bytes += blob.length;
    } else {
      ++pack.experts;
      pack.expert_bytes += blob.length;
      pack.largest_expert = std::max(pack.largest_expert, blob.length);
    }
  }
  packs_.push_back(std::move(pack));
  return static_cast<uint32_t>(packs_.size() - 1);
}

Result<uint32_t> Catalogue::find(const std::string& name) const {
  std::string names;
  for (uint32_t i = 0; i < models_.size(); ++i) {
    if (models_[i].name == name) return i;
    names += (names.empty() ? "" : ", ") + models_[i].name;
  }
  return not_found("this store does not serve model '" + name + "'; it serves " + names);
}

const Catalogue::Pack& Catalogue::pack_of_entry(uint32_t entry) const {
  const auto after = std::ranges::upper_bound(packs_, entry, {}, &Pack::first_entry);
  return *std::prev(after);
}

const Blob& Catalogue::blob(uint32_t entry) const {
  const Pack& pack = pack_of_entry(entry);
  return pack.manifest.blobs[entry - pack.first_entry];
}

std::string Catalogue::describe(uint32_t entry) const {
  const Pack& pack = pack_of_entry(entry);
  const uint32_t index = entry - pack.first_entry;
  const Blob& blob = pack.manifest.blobs[index];
  const auto model = std::ranges::find_if(models_, [&](const Model& m) { return &packs_[m.pack] == &pack; });
  const std::string name = "model " + (model == models_.end() ? pack.manifest.model_name : model->name);
  if (blob.kind == BlobKind::kDense) return name + ", dense blob " + std::to_string(index);
  return name + ", layer " + std::to_string(blob.moe_layer.value) + ", expert " + std::to_string(blob.expert.value) + " (" +
         std::string(dtype_name(blob.precision)) + ")";
}

std::vector<MachineBlob> Catalogue::machine_blobs() const {
  std::vector<MachineBlob> blobs;
  for (const Pack& pack : packs_)
    for (const Blob& blob : pack.manifest.blobs) blobs.push_back(machine_blob(pack.manifest, blob));
  return blobs;
}

uint32_t Catalogue::entries() const {
  uint32_t count = 0;
  for (const Pack& pack : packs_) count += static_cast<uint32_t>(pack.manifest.blobs.size());
  return count;
}

}  // namespace moestro::store

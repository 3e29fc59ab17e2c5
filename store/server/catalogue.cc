#include "store/server/catalogue.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "common/expert_layout.h"
#include "common/model/model_spec.h"
#include "store/reader/slice_hash.h"

namespace moestro::store {
namespace {

/// What its manifest says of its bytes: two blobs of equal claims cannot both be read without having equal checksums.
ContentHash claim_of(const Blob& blob) {
  std::vector<SliceHash> slices;
  for (const Slice& slice : blob.slices) slices.push_back({slice.length, slice.xxh3_64, 0});
  return content_of(slices);
}

uint32_t experts_at_once(const Manifest& manifest) {
  const auto model = model::describe_model(manifest.config_json, manifest.generation_config_json);
  return model && model->spec.moe_layers() > 0 ? tier::experts_of_two_layers(model->spec.moe().top_k) : 1;
}

}  // namespace

Result<Catalogue> Catalogue::open(const std::vector<ModelSource>& sources) {
  if (sources.empty()) return invalid_argument("no model to serve: give --model NAME=PACK");
  Catalogue catalogue;
  for (const ModelSource& source : sources) {
    if (source.name.empty()) return invalid_argument("--model needs a name: NAME=PACK");
    if (!source.retired &&
        std::ranges::any_of(catalogue.models_, [&](const Model& m) { return m.name == source.name; }))
      return invalid_argument("two models are named '" + source.name + "': names must differ");
    auto seen = look_at(source.pack);
    if (!seen) return seen.status().with_context("model '" + source.name + "'");
    auto index = catalogue.find_version(*seen);
    if (!index) {
      auto added = catalogue.add(std::move(*seen), catalogue.entries());
      if (!added) return added.status().with_context("model '" + source.name + "'");
      index = *added;
    }
    MOESTRO_ASSIGN_OR_RETURN(const uint32_t number, catalogue.number(source.name));
    if (!source.retired) {
      catalogue.name(source.name, *index);
    } else if (Pack& pack = catalogue.packs_.at(*index); pack.owners == 0) {  // else its directory has a named one now
      pack.retired = true, pack.owners = ModelMask{1} << number, pack.last_name = source.name;
    }
  }
  return catalogue;
}

std::vector<ModelSource> Catalogue::sources() const {
  std::vector<ModelSource> sources;
  for (const auto& [first, index] : by_entry_) {
    const Pack& pack = packs_.at(index);
    for (const Model& model : models_)
      if (model.pack == index) sources.push_back({model.name, pack.dir});
    if (pack.retired) sources.push_back({pack.last_name, pack.dir, true});
  }
  return sources;
}

Result<Catalogue::Pack> Catalogue::look_at(const std::filesystem::path& where) {
  std::error_code error;
  Pack pack;
  pack.dir = std::filesystem::canonical(where, error);
  if (error) return not_found("no pack at " + where.string() + ": " + error.message());
  MOESTRO_ASSIGN_OR_RETURN(pack.manifest, open_pack(pack.dir));
  pack.layers = dense_layers(pack.manifest), pack.experts_at_once = experts_at_once(pack.manifest);
  for (const Blob& blob : pack.manifest.blobs) {
    if (blob.kind == BlobKind::kDense) {
      pack.dense_bytes += blob.length;
    } else {
      pack.experts += blob.precision == pack.manifest.expert_precisions.front();  // whatever its copies
      pack.expert_bytes += blob.length;
      pack.largest_expert = std::max(pack.largest_expert, blob.length);
    }
  }
  return pack;
}

std::optional<uint32_t> Catalogue::find_version(const Pack& seen) const {
  for (const auto& [index, pack] : packs_)
    if (pack.dir == seen.dir && pack.manifest.identity == seen.manifest.identity) return index;
  return std::nullopt;
}

bool Catalogue::is_copy_of(uint32_t index, const Pack& seen) const {
  return packs_.at(index).manifest.identity == seen.manifest.identity && !find_version(seen) &&
         std::ranges::count(models_, index, &Model::pack) == 1;
}

Result<uint32_t> Catalogue::free_entries(uint32_t count, uint32_t entries_max) const {
  uint32_t from = 0;
  for (const auto& [first, index] : by_entry_) {
    if (first - from >= count) return from;
    from = first + packs_.at(index).blobs();
  }
  if (entries_max - from >= count) return from;
  return exhausted("the store's table of " + std::to_string(entries_max) + " blobs has no room for " +
                   std::to_string(count) + " more in a row: remove another model, or start the store with this one");
}

Result<uint32_t> Catalogue::add(Pack seen, uint32_t first_entry) {
  MOESTRO_ASSIGN_OR_RETURN(seen.first_file, files_.add(seen.dir, seen.manifest));
  seen.first_entry = first_entry;
  by_entry_[first_entry] = next_pack_;
  packs_.emplace(next_pack_, std::move(seen));
  return next_pack_++;
}

Result<uint32_t> Catalogue::reopen(uint32_t index) {
  Pack& pack = packs_.at(index);
  MOESTRO_ASSIGN_OR_RETURN(const uint32_t first, files_.add(pack.dir, pack.manifest));
  return std::exchange(pack.first_file, first);
}

void Catalogue::name(const std::string& name, uint32_t index) {
  forget_name(name);
  models_.push_back({name, index});
  Pack& pack = packs_.at(index);
  if (pack.retired) pack.owners = 0;
  pack.owners |= ModelMask{1} << numbers_.at(name);
  if (std::ranges::count(models_, index, &Model::pack) == 1) pack.last_name = name;
  pack.retired = false;
}

bool Catalogue::forget_name(const std::string& name) {
  const auto found = std::ranges::find(models_, name, &Model::name);
  if (found == models_.end()) return false;
  const uint32_t index = found->pack;
  models_.erase(found);
  Pack& pack = packs_.at(index);
  pack.retired = std::ranges::none_of(models_, [index](const Model& m) { return m.pack == index; });
  if (pack.retired) return true;
  pack.owners &= ~(ModelMask{1} << numbers_.at(name));
  if (pack.last_name == name) pack.last_name = std::ranges::find(models_, index, &Model::pack)->name;
  return true;
}

std::optional<uint32_t> Catalogue::known_number(const std::string& name) const {
  const auto known = numbers_.find(name);
  return known == numbers_.end() ? std::nullopt : std::optional(known->second);
}

Result<uint32_t> Catalogue::number(const std::string& name, ModelMask attached) {
  std::erase_if(numbers_, [&](const auto& known) {
    const ModelMask bit = ModelMask{1} << known.second;
    return known.first != name && (attached & bit) == 0 &&
           std::ranges::none_of(models_, [&](const Model& m) { return m.name == known.first; }) &&
           std::ranges::none_of(packs_, [&](const auto& pack) { return (pack.second.owners & bit) != 0; });
  });
  if (const auto known = numbers_.find(name); known != numbers_.end()) return known->second;
  ModelMask taken = 0;
  for (const auto& [other, number] : numbers_) taken |= ModelMask{1} << number;
  if (~taken == 0)
    return exhausted("a store serves at most " + std::to_string(kModelsMax) + " models: remove one first");
  return numbers_[name] = static_cast<uint32_t>(std::countr_one(taken));
}

void Catalogue::drop(uint32_t index) {
  const Pack& pack = packs_.at(index);
  by_entry_.erase(pack.first_entry);
  files_.close(pack.first_file, static_cast<uint32_t>(pack.manifest.files.size()));
  packs_.erase(index);
}

Result<uint32_t> Catalogue::find(const std::string& name) const {
  std::string names;
  for (const Model& model : models_) {
    if (model.name == name) return model.pack;
    names += (names.empty() ? "" : ", ") + model.name;
  }
  return not_found("this store does not serve model '" + name + "'; it serves " + (names.empty() ? "none" : names));
}

const Catalogue::Pack& Catalogue::pack_of_entry(uint32_t entry) const {
  return packs_.at(std::prev(by_entry_.upper_bound(entry))->second);
}

bool Catalogue::has_entry(uint32_t entry) const {
  const auto after = by_entry_.upper_bound(entry);
  if (after == by_entry_.begin()) return false;
  const auto& [first, index] = *std::prev(after);
  return entry - first < packs_.at(index).blobs();
}

const Blob& Catalogue::blob(uint32_t entry) const {
  const Pack& pack = pack_of_entry(entry);
  return pack.manifest.blobs[entry - pack.first_entry];
}

std::string Catalogue::describe(uint32_t entry) const {
  const Pack& pack = pack_of_entry(entry);
  const uint32_t index = entry - pack.first_entry;
  const Blob& blob = pack.manifest.blobs[index];
  const std::string name = "model " + pack.last_name;
  if (blob.kind == BlobKind::kDense) return name + ", dense blob " + std::to_string(index);
  return name + ", layer " + std::to_string(blob.moe_layer.value) + ", expert " + std::to_string(blob.expert.value) +
         " (" + std::string(dtype_name(blob.precision)) + ")";
}

std::vector<MachineBlob> Catalogue::machine_blobs(const Pack& pack) {
  std::vector<MachineBlob> blobs;
  for (const Blob& blob : pack.manifest.blobs) {
    const bool dense = blob.kind == BlobKind::kDense;
    blobs.push_back({dense, blob.length,
                     blob_format(kExpertLayoutId, static_cast<uint8_t>(blob.precision), dense),
                     claim_of(blob)});
  }
  for (const uint32_t blob : pack.streamed) blobs[blob].streamed = true;
  return blobs;
}

tier::DenseNeeds Catalogue::dense_needs(uint32_t workers) const {
  tier::DenseNeeds needs;
  needs.workers = workers;
  for (const auto& [first, index] : by_entry_) {
    const Pack& pack = packs_.at(index);
    const auto rounded = [&](uint32_t blob) { return Placement::rounded(pack.manifest.blobs[blob].length); };
    for (uint32_t blob = 0; blob < pack.blobs(); ++blob)
      if (pack.manifest.blobs[blob].kind == BlobKind::kDense) needs.fixed_bytes += rounded(blob);
    for (const uint32_t blob : pack.layers) needs.layers.push_back(rounded(blob)), needs.fixed_bytes -= rounded(blob);
    needs.expert_bytes_max = std::max(needs.expert_bytes_max, Placement::rounded(pack.largest_expert));
    needs.experts_bytes += pack.expert_bytes;
    needs.experts_at_once = std::max(needs.experts_at_once, pack.experts_at_once);
  }
  return needs;
}

void Catalogue::stream(const std::vector<bool>& streamed) {
  size_t layer = 0;
  for (const auto& [first, index] : by_entry_) {
    Pack& pack = packs_.at(index);
    pack.streamed.clear();
    for (const uint32_t blob : pack.layers)
      if (streamed.at(layer++)) pack.streamed.push_back(blob);
  }
}

std::vector<MachineBlob> Catalogue::machine_blobs() const {
  std::vector<MachineBlob> blobs;
  for (const auto& [first, index] : by_entry_) {
    const std::vector<MachineBlob> more = machine_blobs(packs_.at(index));
    blobs.insert(blobs.end(), more.begin(), more.end());
  }
  return blobs;
}

uint32_t Catalogue::entries() const {
  if (by_entry_.empty()) return 0;
  const auto& [first, index] = *by_entry_.rbegin();
  return first + packs_.at(index).blobs();
}

}  // namespace moestro::store

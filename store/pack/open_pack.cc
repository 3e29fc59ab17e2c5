#include <map>

#include "common/expert_layout.h"
#include "common/may_read.h"
#include "common/model/model_spec.h"
#include "store/pack/file.h"
#include "store/pack/journal.h"
#include "store/pack/manifest.h"
#include "store/pack/manifest_layout.h"
#include "store/pack/shards.h"

namespace moestro::store {
namespace {

namespace fs = std::filesystem;

Status check_files(const fs::path& dir, const Manifest& m) {
  std::vector<uint64_t> ends(m.files.size());
  for (const Blob& b : m.blobs)
    for (const Slice& s : b.slices) ends[s.file] = std::max(ends[s.file], s.offset + s.length);
  MOESTRO_RETURN_IF_ERROR(check_shards(dir, m));
  const std::vector<fs::path> paths = data_files(dir, m);
  for (size_t i = 0; i < m.files.size(); ++i) {
    std::error_code ignored;  // what is not there says so when it is opened
    const fs::file_type type = fs::symlink_status(paths[i], ignored).type();
    if (type != fs::file_type::regular && type != fs::file_type::not_found)
      return corrupt(paths[i].string() + ": is not a plain file; nothing outside a pack is read for it");
    MOESTRO_RETURN_IF_ERROR(check_may_read(paths[i], paths[i].parent_path()));
    MOESTRO_ASSIGN_OR_RETURN(const File file, File::open_for_reading(paths[i]));
    MOESTRO_ASSIGN_OR_RETURN(const uint64_t size, file.size());
    if (size != ends[i])
      return corrupt(file.path() + ": has " + std::to_string(size) + " bytes, the manifest says " +
                     std::to_string(ends[i]) + "; pack the model again");
  }
  return Status::ok();
}

Status check_dense(const Manifest& m, const model::ModelDescription& model) {
  std::map<std::string, const PackedTensor*> packed;
  for (const PackedTensor& t : m.tensors) packed[t.name] = &t;
  for (const model::DenseTensor& t : model.dense) {
    const auto it = packed.find(t.name);
    if (it == packed.end() || it->second->shape != t.shape)
      return corrupt("manifest: tensor " + t.name + " is missing or has another shape than its config.json says");
  }
  return m.tensors.size() == model.dense.size() ? Status::ok()
                                                : corrupt("manifest: tensors that its config.json does not know");
}

// An engine takes shapes from the description and offsets from the manifest: both must speak of the same model.
Status check_model(const Manifest& m) {
  MOESTRO_ASSIGN_OR_RETURN(const model::ModelDescription model,
                           model::describe_model(m.config_json, m.generation_config_json));
  MOESTRO_RETURN_IF_ERROR(check_dense(m, model));
  const model::MoeSpec& moe = model.spec.moe();
  const Blob& last = m.blobs.back();
  if (last.moe_layer.value + int64_t{1} != model.spec.moe_layers() || last.expert.value + int64_t{1} != moe.experts)
    return corrupt("manifest: number of experts differs from its config.json");
  std::map<DType, std::vector<ExpertLayout>> layouts;
  for (const DType d : m.expert_precisions) {
    MOESTRO_ASSIGN_OR_RETURN(layouts[d], m.expert_layouts(moe.expert, d));
  }
  for (const Blob& b : m.blobs)
    if (b.kind == BlobKind::kExpert &&
        b.length != static_cast<uint64_t>(layouts[b.precision][b.moe_layer.value].bytes()))
      return corrupt("manifest: size of the experts differs from its config.json");
  return Status::ok();
}

}  // namespace

Result<Manifest> open_pack(const fs::path& dir) {
  MOESTRO_RETURN_IF_ERROR(check_may_read(dir / "manifest", dir));
  std::error_code ignored;
  if (!fs::is_directory(dir, ignored)) return not_found(dir.string() + ": no such directory");
  if (!fs::exists(dir / "manifest", ignored))
    return not_found(dir.string() + (fs::exists(dir / kJournalName, ignored)
                                         ? ": an unfinished pack; run moestro pack again to finish it"
                                         : ": not a pack (it has no manifest); make one with moestro pack"));
  if (fs::symlink_status(dir / "manifest", ignored).type() != fs::file_type::regular)
    return corrupt((dir / "manifest").string() + ": is not a plain file; nothing outside a pack is read for it");
  MOESTRO_ASSIGN_OR_RETURN(const std::string bytes, read_text_file(dir / "manifest", kManifestBytesMax));
  auto manifest = parse_manifest(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size());
  if (!manifest) return manifest.status().with_context(dir.string());
  MOESTRO_RETURN_IF_ERROR(check_files(dir, *manifest));
  if (Status status = check_model(*manifest); !status.is_ok()) return status.with_context(dir.string());
  return manifest;
}

}  // namespace moestro::store

// Models come and go while the store serves. A worker stays with the version of the pack that it attached with; a
// version goes when neither a name nor a worker is left for it.

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "store/pack/same_model.h"
#include "store/server/change_key.h"
#include "store/server/kept_models.h"
#include "store/server/store_server.h"

namespace moestro::store {
namespace {

constexpr size_t kNameBytesMax = 128;

Status check_name(const std::string& name) {
  const bool plain =
      std::ranges::all_of(name, [](unsigned char c) { return c > 0x20 && c < 0x7f && c != '=' && c != ','; });
  return !name.empty() && name.size() <= kNameBytesMax && plain
             ? Status::ok()
             : invalid_argument("a model's name has 1 to " + std::to_string(kNameBytesMax) +
                                " printable characters, none of them '=' or ','");
}

std::string plural(uint64_t n, const char* what) { return std::to_string(n) + " " + what + (n == 1 ? "" : "s"); }

}  // namespace

void StoreServer::answer(const std::string& peer, const ChangePacksRequest& request) {
  using Kind = ChangePacksRequest::Kind;
  if (const Status spoken = check_protocol("a change of packs", request.protocol); !spoken)
    return refuse(peer, spoken);
  if (change_key_.empty())
    return refuse(peer, unavailable("this store could not write its key at start, so nobody can change what it serves: "
                                    "make room in " + options_.run_dir.string() + " and start it again"));
  if (!is_key(request.key, change_key_))
    return refuse(peer,
                  invalid_argument("a change of packs without the key of this store: only its own user may read " +
                                   (options_.run_dir / "store.key").string()));
  if (const Status named = check_name(request.name); !named) return refuse(peer, named);
  auto done = request.kind == Kind::kRemove ? remove_model(request.name)
              : request.kind == Kind::kAdd  ? add_model(request.name, request.pack)
                                            : replace_model(request.name, request.pack);
  if (!done) return refuse(peer, done.status().with_context("model '" + request.name + "'"));
  assign_shares();
  release_unused_packs();
  note_packs();
  note_models();
  log::info("{}", *done);
  reply(peer, build_packs_changed(*done));
}

Result<std::string> StoreServer::add_model(const std::string& name, const std::filesystem::path& dir) {
  const auto known = catalogue_.find(name);
  std::error_code ignored;
  if (known && catalogue_.pack(*known).dir != std::filesystem::weakly_canonical(dir, ignored))
    return invalid_argument("it is served already, from " + catalogue_.pack(*known).dir.string() +
                            ": use `moestro store replace`");
  MOESTRO_ASSIGN_OR_RETURN(Catalogue::Pack seen, Catalogue::look_at(dir));
  if (known && catalogue_.find_version(seen) != *known)
    return invalid_argument("it is served already, and " + seen.dir.string() +
                            " was packed anew since: use `moestro store replace`");
  for (const auto& [index, pack] : catalogue_.packs())  // what they belong to takes the new one for another version
    if (pack.retired && pack.last_name == name && workers_of(index) > 0)
      MOESTRO_RETURN_IF_ERROR(check_same_model(pack.manifest, seen.manifest)
                                  .with_context("workers of a model of this name are still there, and the pack in " +
                                                seen.dir.string()));
  MOESTRO_ASSIGN_OR_RETURN([[maybe_unused]] const uint32_t number, catalogue_.number(name, attached_models()));
  MOESTRO_ASSIGN_OR_RETURN(const uint32_t pack, take_in(std::move(seen)));
  catalogue_.name(name, pack);
  return "model '" + name + "' is served from " + catalogue_.pack(pack).dir.string();
}

Result<std::string> StoreServer::replace_model(const std::string& name, const std::filesystem::path& dir) {
  MOESTRO_ASSIGN_OR_RETURN(const uint32_t before, catalogue_.find(name));
  MOESTRO_ASSIGN_OR_RETURN(Catalogue::Pack seen, Catalogue::look_at(dir));
  MOESTRO_RETURN_IF_ERROR(check_same_model(catalogue_.pack(before).manifest, seen.manifest)
                              .with_context("the pack in " + seen.dir.string()));
  if (catalogue_.is_copy_of(before, seen)) {
    MOESTRO_RETURN_IF_ERROR(check_kept_path(seen.dir));
    catalogue_.pack(before).dir = seen.dir;
    MOESTRO_RETURN_IF_ERROR(mend(before));
    return "model '" + name + "' is served from " + seen.dir.string() +
           ": the same version as before, for its workers too";
  }
  const std::string texts = other_texts(catalogue_.pack(before).manifest, seen.manifest);
  MOESTRO_ASSIGN_OR_RETURN(const uint32_t pack, take_in(std::move(seen)));
  catalogue_.name(name, pack);
  std::string from = "model '" + name + "' is served from " + catalogue_.pack(pack).dir.string();
  if (!texts.empty())
    from += "; it has another " + texts +
            " than before, which orchestrators read when they start: restart them from this pack to use it";
  if (pack == before) return from + ": the same version as before, its files opened anew";
  const uint32_t workers = workers_of(before);
  return from + (workers == 0
                     ? ""
                     : "; " + plural(workers, "worker") + " of the version before it keep it until they attach anew");
}

Result<std::string> StoreServer::remove_model(const std::string& name) {
  MOESTRO_ASSIGN_OR_RETURN(const uint32_t pack, catalogue_.find(name));
  catalogue_.forget_name(name);
  const uint32_t workers = catalogue_.pack(pack).retired ? workers_of(pack) : 0;
  return "model '" + name + "' is not served any more" +
         (workers == 0 ? "" : "; " + plural(workers, "worker") + " of it keep its weights until they detach");
}

/// A pack as it is now: one that is known is mended, another version of it is another pack.
Result<uint32_t> StoreServer::take_in(Catalogue::Pack seen) {
  MOESTRO_RETURN_IF_ERROR(check_kept_path(seen.dir));
  if (const auto known = catalogue_.find_version(seen)) {
    Catalogue::Pack& pack = catalogue_.pack(*known);
    if (pack.removed)  // bytes that others share have kept it from going
      MOESTRO_RETURN_IF_ERROR(machine_->add_entries(pack.first_entry, Catalogue::machine_blobs(pack)));
    pack.removed = false;
    MOESTRO_RETURN_IF_ERROR(mend(*known));
    return *known;
  }
  MOESTRO_ASSIGN_OR_RETURN(const uint32_t first, catalogue_.free_entries(seen.blobs(), entries_max_));
  MOESTRO_ASSIGN_OR_RETURN(const uint32_t index, catalogue_.add(std::move(seen), first));
  Catalogue::Pack& pack = catalogue_.pack(index);
  Status added = machine_->add_entries(first, Catalogue::machine_blobs(pack));
  if (!added && window_.places > 0) {  // its layers take turns with those of the packs that are there
    pack.streamed = pack.layers;
    added = machine_->add_entries(first, Catalogue::machine_blobs(pack));
    if (added) say_window();
  }
  if (!added) {
    catalogue_.drop(index);
    return added;
  }
  give_files_to_reader(pack.first_file, static_cast<uint32_t>(pack.manifest.files.size()));
  perform(machine_->share_known(first, pack.blobs()));  // before the version goes that it may share bytes with
  return index;
}

/// The reader learns of these files. On a drive that was not there at start they share the first drive's thread.
void StoreServer::give_files_to_reader(uint32_t first, uint32_t count) {
  const PackFiles& files = catalogue_.files();
  const std::vector<int> fds = files.fds();
  std::vector<uint32_t> drives(files.drives().begin() + first, files.drives().begin() + first + count);
  for (uint32_t& drive : drives) drive = drive < loader_->drives().size() ? drive : 0;
  loader_->set_files(first, {fds.begin() + first, fds.begin() + first + count},
                     {files.names().begin() + first, files.names().begin() + first + count}, drives);
}

bool StoreServer::files_being_read(uint32_t first) const {
  return std::ranges::any_of(under_way_, [first](const auto& load) { return load.second.first_file == first; });
}

void StoreServer::close_files(uint32_t first, uint32_t count) {
  loader_->set_files(first, std::vector<int>(count, -1), std::vector<std::string>(count),
                     std::vector<uint32_t>(count, 0));
  catalogue_.close_files(first, count);
}

/// The same version, perhaps from new files: what was bad is tried anew.
Status StoreServer::mend(uint32_t pack) {
  const auto count = static_cast<uint32_t>(catalogue_.pack(pack).manifest.files.size());
  MOESTRO_ASSIGN_OR_RETURN(const uint32_t before, catalogue_.reopen(pack));
  files_to_close_.emplace_back(before, count);
  give_files_to_reader(catalogue_.pack(pack).first_file, count);
  perform(machine_->mend_entries(catalogue_.pack(pack).first_entry, catalogue_.pack(pack).blobs()));
  return Status::ok();
}

uint32_t StoreServer::workers_of(uint32_t pack) const {
  return static_cast<uint32_t>(
      std::ranges::count_if(workers_, [pack](const auto& worker) { return worker && worker->pack == pack; }));
}

ModelMask StoreServer::attached_models() const {
  ModelMask models = 0;
  for (const auto& worker : workers_)
    if (const auto number = worker ? catalogue_.known_number(worker->model) : std::nullopt)
      models |= ModelMask{1} << *number;
  return models;
}

void StoreServer::release_unused_packs() {
  std::vector<uint32_t> retired;
  for (const auto& [index, pack] : catalogue_.packs())
    if (pack.retired && workers_of(index) == 0) retired.push_back(index);
  for (const uint32_t index : retired) {
    Catalogue::Pack& pack = catalogue_.pack(index);
    if (!std::exchange(pack.removed, true)) {
      warm_.forget(pack.first_entry, pack.blobs());
      perform(machine_->remove_entries(pack.first_entry, pack.blobs()));
    }
    if (!machine_->entries_free(pack.first_entry, pack.blobs())) continue;
    log::info("the pack of {}, once model '{}', is not used any more", pack.dir.string(), pack.last_name);
    close_files(pack.first_file, static_cast<uint32_t>(pack.manifest.files.size()));
    check_.forget(pack.first_entry, pack.blobs());
    catalogue_.drop(index);
    note_packs();
    note_models();
  }
  std::erase_if(files_to_close_, [this](const auto& files) {
    if (files_being_read(files.first)) return false;
    close_files(files.first, files.second);
    return true;
  });
}

std::vector<ModelFigures> StoreServer::model_figures() const {
  std::vector<ModelFigures> figures;
  const auto figures_of = [&](const std::string& name, uint32_t index) {
    const Catalogue::Pack& pack = catalogue_.pack(index);
    ModelFigures m{name,
                   pack.dir.string(),
                   pack.dense_bytes,
                   pack.expert_bytes,
                   pack.blobs(),
                   0,
                   pack.experts,
                   0,
                   pack.retired,
                   0,
                   0,
                   0,
                   pack.manifest.identity,
                   static_cast<uint32_t>(pack.layers.size()),
                   static_cast<uint32_t>(pack.streamed.size()),
                   pack.streamed_bytes()};
    std::vector<std::pair<MoeLayerId, ExpertId>> resident;  // of which one copy is there, or more
    for (uint32_t i = 0; i < m.blobs; ++i)
      if (const Blob& blob = pack.manifest.blobs[i];
          blob.kind == BlobKind::kExpert &&
          machine_->state(machine_->resolve(pack.first_entry + i)) == Residency::kResident)
        resident.emplace_back(blob.moe_layer, blob.expert);
    if (pack.manifest.expert_precisions.size() > 1) {
      std::ranges::sort(resident);
      resident.erase(std::unique(resident.begin(), resident.end()), resident.end());
    }
    m.resident_experts = static_cast<uint32_t>(resident.size());
    for (const auto& worker : workers_) m.workers += worker && worker->pack == index && worker->model == name;
    if (const auto number = catalogue_.known_number(name)) {
      const ModelShare& share = machine_->model_share(*number);
      m.used_bytes = machine_->model_bytes(*number), m.guaranteed_bytes = share.guaranteed;
      m.maximal_bytes = share.maximal == UINT64_MAX ? 0 : share.maximal;
    }
    figures.push_back(std::move(m));
  };
  for (const Catalogue::Model& model : catalogue_.models()) figures_of(model.name, model.pack);
  for (const auto& [index, pack] : catalogue_.packs())
    if (pack.retired) figures_of(pack.last_name, index);
  return figures;
}

}  // namespace moestro::store

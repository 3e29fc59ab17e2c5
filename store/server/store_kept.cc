// The models of a store that was killed are its successor's.

#include <algorithm>

#include "common/log.h"
#include "store/server/kept_models.h"
#include "store/server/store_server.h"

namespace moestro::store {
namespace {

bool same(const std::vector<ModelSource>& a, const std::vector<ModelSource>& b) {
  return std::ranges::equal(
      a, b, [](const ModelSource& x, const ModelSource& y) { return x.name == y.name && x.pack == y.pack; });
}

}  // namespace

/// What to open: what the store was started with, or what its predecessor, started alike, had come to serve. A pack
/// that was added and is gone must not keep the others from being served.
std::vector<ModelSource> StoreServer::models_to_open() {
  const auto kept = read_kept_models(options_.run_dir);
  if (!kept) {
    if (kept.status().code() != Code::kNotFound)
      log::warn("what the store before this one had come to serve is not known, so this one serves what it was started "
                "with: {}",
                kept.status().message());
    return options_.models;
  }
  if (!same(kept->started, options_.models)) {
    log::warn("models that were added to or removed from the store before this one are forgotten: it was started with "
              "others");
    remove_kept_models(options_.run_dir);
    return options_.models;
  }
  std::vector<ModelSource> models;
  std::string names;
  for (const ModelSource& model : kept->served) {
    if (const auto seen = Catalogue::look_at(model.pack); !seen) {
      log::error("model '{}', which the store before this one served, is left out: {}", model.name,
                 seen.status().message());
      continue;
    }
    models.push_back(model);
    names += (names.empty() ? "" : ", ") + model.name;
  }
  if (models.empty()) return options_.models;
  log::info("going on with the models of the store that was killed: {}", names);
  arena_of_before_ = kept->dram == options_.dram_bytes.value_or(0);
  return models;
}

/// After a change. The pack of the first entries comes first, so that a successor gives them the same ones. While
/// workers still hold a version that no name means any more, nothing is kept: a successor that serves the names alone
/// would take the arena away from under them.
void StoreServer::note_models() {
  if (std::ranges::any_of(catalogue_.packs(), [](const auto& pack) { return pack.second.retired; }))
    return remove_kept_models(options_.run_dir);
  std::vector<std::pair<uint32_t, ModelSource>> by_entry;
  for (const Catalogue::Model& model : catalogue_.models()) {
    const Catalogue::Pack& pack = catalogue_.pack(model.pack);
    by_entry.push_back({pack.first_entry, {model.name, pack.dir}});
  }
  std::ranges::stable_sort(by_entry, {}, [](const auto& model) { return model.first; });
  KeptModels kept{options_.dram_bytes.value_or(0), options_.models, {}};
  for (auto& [first, model] : by_entry) kept.served.push_back(std::move(model));
  if (const Status written = write_kept_models(options_.run_dir, kept); !written)
    log::warn("{}: if this store is killed, the next one serves what it was started with", written.message());
}

}  // namespace moestro::store

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
/// that was added and is gone must not keep the others from being served. Where none is there, nothing is served: the
/// version that was replaced is not what its users asked for.
Result<std::vector<ModelSource>> StoreServer::models_to_open() {
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
  std::string names, missing;
  for (const ModelSource& model : kept->served) {
    if (const auto seen = Catalogue::look_at(model.pack); !seen) {
      if (model.retired) {
        log::info("the pack of {}, once model '{}', is gone", model.pack.string(), model.name);
      } else {
        missing = seen.status().message();
        log::error("model '{}', which the store before this one served, is left out: {}", model.name, missing);
      }
      continue;
    }
    models.push_back(model);
    if (!model.retired) names += (names.empty() ? "" : ", ") + model.name;
  }
  if (names.empty() && !missing.empty())
    return unavailable("nothing is there of what the store before this one served: " + missing + "; put it back, or "
                       "remove " + (options_.run_dir / "store.models").string() + " to serve what is asked for now");
  if (names.empty()) {
    log::warn("all models were removed from the store before this one; a store begins with at least one, so this one "
              "serves what it was started with");
    return options_.models;
  }
  log::info("going on with the models of the store that was killed: {}", names);
  arena_of_before_ = kept->dram == options_.dram_bytes.value_or(0);
  return models;
}

/// After a change. Versions that no name means any more are noted too: workers may hold them, and the bytes of another
/// pack may lie where they were first read. A successor that opened the named ones alone could not adopt the arena.
void StoreServer::note_models() {
  const KeptModels kept{options_.dram_bytes.value_or(0), options_.models, catalogue_.sources()};
  if (const Status written = write_kept_models(options_.run_dir, kept); !written)
    log::warn("{}: if this store is killed, the next one serves what it was started with", written.message());
}

}  // namespace moestro::store

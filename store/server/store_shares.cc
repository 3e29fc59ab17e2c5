// The shares of the models that are served: from the configuration to the machine, and into the figures.

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "store/server/store_server.h"

namespace moestro::store {

Status StoreServer::check_shares(uint64_t arena_bytes) const {
  const std::vector<NamedShare>& shares = options_.shares;
  uint64_t sum = 0;
  for (const NamedShare& named : shares) {
    if (named.maximal < named.guaranteed)
      return invalid_argument("store.shares: the maximum of model '" + named.model + "' is below its guarantee");
    if (__builtin_add_overflow(sum, named.guaranteed, &sum)) sum = UINT64_MAX;
  }
  if (sum > arena_bytes)
    return invalid_argument("store.shares: the guarantees add up to " + std::to_string(sum) + " bytes, the arena has " +
                            std::to_string(arena_bytes) + ": lower them, or raise --dram");
  return Status::ok();
}

/// To be called whenever models or packs have changed.
void StoreServer::assign_shares() {
  for (const Catalogue::Model& model : catalogue_.models()) {
    const auto number = catalogue_.number(model.name, attached_models());
    if (!number) continue;  // a served model has one
    const auto named = std::ranges::find(options_.shares, model.name, &NamedShare::model);
    const ModelShare share =
        named == options_.shares.end() ? ModelShare{} : ModelShare{named->guaranteed, named->maximal};
    if (!(machine_->model_share(*number) == share)) machine_->set_model_share(*number, share);
  }
  for (const auto& [index, pack] : catalogue_.packs())
    if (!pack.removed) machine_->set_owners(pack.first_entry, pack.blobs(), pack.owners);
}

}  // namespace moestro::store

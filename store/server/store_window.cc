// Dense weights that do not all fit into the arena: which layers stay, and the window that the others take turns in.

#include <algorithm>

#include <fmt/format.h>

#include "common/log.h"
#include "common/units.h"
#include "store/server/store_server.h"

namespace moestro::store {

/// For a new arena. Packs that are added later are part of no plan: their layers stay if they fit, else all of them
/// take turns (take_in()).
Status StoreServer::plan_window(uint64_t arena_bytes) {
  MOESTRO_ASSIGN_OR_RETURN(const tier::DenseWindow plan, tier::plan_dense_window(dense_needs(), arena_bytes));
  catalogue_.stream(plan.streamed);
  window_ = {plan.places, plan.place_bytes};
  return Status::ok();
}

/// As the former store had it. What does not match these packs is left to fits().
void StoreServer::adopt_window(const ArenaDirectory& left) {
  window_ = {left.window_places, left.window_place_bytes};
  catalogue_.stream(std::vector<bool>(dense_needs().layers.size(), false));
  for (const auto& [index, known] : catalogue_.packs())
    for (const ArenaDirectory::Pack& was : left.packs) {
      Catalogue::Pack& pack = catalogue_.pack(index);
      const bool same = was.identity == pack.manifest.identity && was.first_entry == pack.first_entry;
      if (same && std::ranges::includes(pack.layers, was.streamed)) pack.streamed = was.streamed;
    }
}

void StoreServer::say_window() const {
  uint64_t layers = 0, streamed = 0, bytes = 0, speed = 0;
  for (const auto& [index, pack] : catalogue_.packs()) {
    layers += pack.layers.size(), streamed += pack.streamed.size(), bytes += pack.streamed_bytes();
  }
  if (streamed == 0) return;
  for (const uint64_t drive : drive_speeds_) speed += drive;
  const std::string forecast =
      speed == 0 ? "as fast as the drive reads them"
                 : fmt::format("at {} MB/s at most {:.2f} steps a second", speed / 1'000'000,
                               static_cast<double>(speed) / static_cast<double>(bytes));
  log::warn(
      "dense weights do not fit: {} of {} layers stay in memory; the others take turns in {} places, and each step "
      "reads {} of them, {}; --dram {} would hold all",
      layers - streamed, layers, window_.places, mib(bytes), forecast,
      mib(tier::bytes_if_all_stay(dense_needs())));
}

}  // namespace moestro::store

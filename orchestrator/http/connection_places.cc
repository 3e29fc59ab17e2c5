#include "orchestrator/http/connection_places.h"

namespace moestro::orchestrator {

ConnectionPlaces::Entry ConnectionPlaces::enter(Id id, const Peer& peer) {
  const auto own = addresses_.find(peer.address);
  const bool own_full = !peer.local && own != addresses_.end() && own->second.count >= of_one_max_;
  Entry entry;
  if (own_full || count() >= (peer.local ? most_ : most_ - kept_local_)) {
    entry.sent_away = send_away(peer.address, own_full);
    entry.refused = !entry.sent_away;
    if (entry.refused) return entry;
    leave(*entry.sent_away);
  }
  connections_[id] = {peer.address, Doing::kWaiting, ++clock_};
  Address& address = addresses_[peer.address];
  ++address.count;
  address.can_go.insert({{Doing::kWaiting, clock_}, id});
  return entry;
}

/// Nobody goes for a newcomer whose address would then have more than they have.
std::optional<ConnectionPlaces::Id> ConnectionPlaces::send_away(const std::string& newcomer, bool only_its_own) {
  const auto own = addresses_.find(newcomer);
  const Address* most = own != addresses_.end() && !own->second.can_go.empty() ? &own->second : nullptr;
  size_t least = own == addresses_.end() ? 1 : own->second.count + 1;
  if (!only_its_own) {
    for (const auto& [name, address] : addresses_) {
      if (address.can_go.empty() || address.count < least) continue;
      most = &address;
      least = address.count + 1;
    }
  }
  return most == nullptr ? std::nullopt : std::optional(most->can_go.begin()->second);
}

void ConnectionPlaces::does(Id id, Doing what) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& c = found->second;
  auto& can_go = addresses_[c.address].can_go;
  can_go.erase({{c.doing, c.since}, id});
  c.doing = what;
  c.since = ++clock_;
  if (what != Doing::kAnswered) can_go.insert({{what, c.since}, id});
}

void ConnectionPlaces::leave(Id id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  const Connection& c = found->second;
  const auto address = addresses_.find(c.address);
  address->second.can_go.erase({{c.doing, c.since}, id});
  if (--address->second.count == 0) addresses_.erase(address);
  connections_.erase(found);
}

}  // namespace moestro::orchestrator

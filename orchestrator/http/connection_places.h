#pragma once
// Which connections there may be, and which has to go for a new one. A policy without sockets.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

namespace moestro::orchestrator {

/// Where a connection comes from.
struct Peer {
  std::string address;  ///< of IPv6 its network of 64 bits: that is what one client has
  bool local = false;   ///< this host
};

class ConnectionPlaces {
 public:
  using Id = uint64_t;
  /// In the order in which they are sent away; what is answered never is.
  enum class Doing : uint8_t { kWaiting, kSending, kAnswered };
  struct Entry {
    bool refused = false;
    std::optional<Id> sent_away = std::nullopt;  ///< it has no place any more
  };

  /// Of `most` places the last `kept_local` are for connections of this host alone, and one address of another host has
  /// at most `of_one_max`.
  ConnectionPlaces(size_t most, size_t kept_local, size_t of_one_max)
      : most_(most), kept_local_(std::min(kept_local, most)), of_one_max_(of_one_max) {}

  /// A new connection, which waits for its first request. Where there is no place for it, one goes that is not
  /// answered: of the address that has the most, the one that has waited longest.
  Entry enter(Id id, const Peer& peer);
  void does(Id id, Doing what);
  /// Also of one that was sent away.
  void leave(Id id);

  size_t count() const { return connections_.size(); }

 private:
  struct Address {
    size_t count = 0;
    std::set<std::pair<std::pair<Doing, uint64_t>, Id>> can_go;  ///< by what it does, then since when
  };
  struct Connection {
    std::string address;
    Doing doing = Doing::kWaiting;
    uint64_t since = 0;
  };
  std::optional<Id> send_away(const std::string& newcomer, bool only_its_own);

  const size_t most_, kept_local_, of_one_max_;
  uint64_t clock_ = 0;
  std::map<std::string, Address> addresses_;
  std::unordered_map<Id, Connection> connections_;
};

}  // namespace moestro::orchestrator

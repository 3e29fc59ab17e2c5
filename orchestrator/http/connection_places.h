#pragma once
// Which connections may exist, and which is closed for a new one. A policy without sockets.

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
  std::string address;  ///< for IPv6 the network of 64 bits, because one client has all of it
  bool local = false;   ///< this host
};

class ConnectionPlaces {
 public:
  using Id = uint64_t;
  /// In the order in which they are closed. A connection with a running answer is never closed.
  enum class Doing : uint8_t { kWaiting, kSending, kAnswered };
  struct Entry {
    bool refused = false;
    std::optional<Id> sent_away = std::nullopt;  ///< this connection must be closed
  };

  /// The last `kept_local` of `most` places are only for connections from this host. An address of another host has at
  /// most `of_one_max`.
  ConnectionPlaces(size_t most, size_t kept_local, size_t of_one_max)
      : most_(most), kept_local_(std::min(kept_local, most)), of_one_max_(of_one_max) {}

  /// Adds a new connection, which waits for its first request. If there is no place, another one without a running
  /// answer is closed: the one that has waited longest, of the address with the most connections.
  Entry enter(Id id, const Peer& peer);
  void does(Id id, Doing what);
  /// Also for a connection that was closed for another.
  void leave(Id id);

  size_t count() const { return connections_.size(); }

 private:
  struct Address {
    size_t count = 0;
    std::set<std::pair<std::pair<Doing, uint64_t>, Id>> can_go;  ///< by what it does, then by since when
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

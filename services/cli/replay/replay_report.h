#pragma once
// Replays as text and JSON.

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "services/cli/replay/replay_run.h"

namespace moestro::cli {

/// One row: a setting, its results, and the results that they are compared with.
struct ReplayRow {
  std::string cache, predict;
  tier::ReplaySetup setup;
  std::optional<HostCase> host;  ///< as in ReplayCase
  bool cpu = false;
  double share = 0;       ///< slots of all experts
  double link_ratio = 0;  ///< time of copying one expert / time of computing it
  std::vector<Nanos> first_token;  ///< first_token_times() of `report`; empty: each request ran by itself
  bool queued = false;             ///< the order in which requests join was asked for
  tier::ReplayReport report, on_demand, belady;  ///< on demand with LRU
  std::optional<tier::ReplayReport> full_only;   ///< of a replay with low copies: the same without, in the same memory
  tier::Clairvoyant clairvoyant;  ///< belady and this one: of a device with a drive, as if host memory had all

  /// Share of the stall of on demand with LRU that is left, and share of the gap to the clairvoyant's that is closed.
  double stall_left() const;
  double gap_closed() const;
  double speed_up() const;      ///< over on demand with LRU
  double speed_up_best() const; ///< the clairvoyant's
  double bytes_ratio() const;   ///< relative to on demand with LRU
  double wasted_share() const;  ///< of the bytes moved
  Nanos first_token_quantile(double quantile) const;  ///< the time that so many of the requests do not exceed
};

nlohmann::json row_json(const ReplayRow& row);
std::string row_text(const ReplayRow& row);
std::string table_text(const std::vector<ReplayRow>& rows);

}  // namespace moestro::cli

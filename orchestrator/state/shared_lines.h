#pragma once
// Batches that several orchestrators work on: which orchestrator has each line, and which one checks a batch's input
// and writes its files. A taken line belongs to its orchestrator as long as that is alive; then others get it. Results
// go to StateStore::put_results, which keeps one for each line.
//
// A model's name belongs to one version of the model at a time (decision 67): the first stays as long as a living
// orchestrator serves it. Others with that name take no lines, and their results are not kept.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::orchestrator {

/// A line of a batch's input.
struct QueuedLine {
  uint64_t number = 0;  ///< from 1, as an editor counts
  uint64_t offset = 0;  ///< of its first byte
  bool operator==(const QueuedLine&) const = default;
};

/// What an orchestrator serves, for others to compare.
struct ServedVersion {
  std::string version;             ///< without line breaks; empty: it is not known yet
  std::vector<std::string> names;  ///< of the model, aliases with it
};

/// A name that belongs to another version.
struct HeldName {
  std::string name, version;
  std::vector<std::string> hosts;  ///< orchestrators that serve it; none: it is not known whether they live
  bool operator==(const HeldName&) const = default;
};

class SharedLines {
 public:
  virtual ~SharedLines() = default;

  /// Renews this orchestrator's lease and says what it serves. Call it more often than once per lease, and before
  /// results of another version are stored; an orchestrator without renewal for a lease is considered dead. Returns
  /// those of the names whose lines are not for this version.
  virtual Result<std::vector<HeldName>> beat(const ServedVersion& served) = 0;
  virtual int64_t lease_ms() const = 0;
  /// This orchestrator ends: its lines and names are free at once.
  virtual Status leave() = 0;

  /// Tries to take the lead of a batch, which checks the input and writes the files. True if this orchestrator has it:
  /// there was no leader, or the leader is dead.
  virtual Result<bool> lead(const std::string& batch) = 0;
  /// Offers lines to run, in ascending order. `anew`: earlier offers are dropped. kConflict unless this orchestrator
  /// leads and the batch is validating.
  virtual Status offer(const std::string& batch, std::span<const QueuedLine> lines, bool anew) = 0;
  /// Takes at most `most` lines of a batch in progress: first those of dead orchestrators, then new ones. None if the
  /// name of its model belongs to another version.
  virtual Result<std::vector<QueuedLine>> take(const std::string& batch, size_t most) = 0;
  /// Gives these lines back to all orchestrators.
  virtual Status give_back(const std::string& batch, std::span<const uint64_t> lines) = 0;
  /// Gives back all lines of this orchestrator except these. Call it again and again: a `take` without an answer may
  /// have been done, or be done later.
  virtual Status hold_only(const std::string& batch, std::span<const uint64_t> lines) = 0;
};

}  // namespace moestro::orchestrator

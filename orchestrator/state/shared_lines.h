#pragma once
// Batches that several orchestrators work on: whose each line is, and who checks a batch's input and writes its files.
// A line that was taken is its taker's as long as that one lives; then others get it. Results are
// StateStore::put_results', once for each line whoever brings it.

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

class SharedLines {
 public:
  virtual ~SharedLines() = default;

  /// This orchestrator lives. To be said more often than every lease; whoever has not said so for a lease is taken for
  /// dead.
  virtual Status beat() = 0;
  virtual int64_t lease_ms() const = 0;
  /// This orchestrator ends: what it has taken is free at once.
  virtual Status leave() = 0;
  /// Changes when answers may have been lost, so that lines may be this one's that it does not know of: hold_only.
  virtual uint64_t generation() const = 0;

  /// True if this orchestrator checks the batch's input and writes its files: nobody does, or who did is dead.
  virtual Result<bool> lead(const std::string& batch) = 0;
  /// Lines to be run, in ascending order; `anew`: what was offered before is forgotten. kConflict unless this one leads
  /// and the batch is validating.
  virtual Status offer(const std::string& batch, std::span<const QueuedLine> lines, bool anew) = 0;
  /// At most `most` lines of a batch in progress, from now this orchestrator's: first those of the dead, then new ones.
  virtual Result<std::vector<QueuedLine>> take(const std::string& batch, size_t most) = 0;
  /// These may be taken again, by anybody.
  virtual Status give_back(const std::string& batch, std::span<const uint64_t> lines) = 0;
  /// All that is this one's, but for these, is given back.
  virtual Status hold_only(const std::string& batch, std::span<const uint64_t> lines) = 0;
};

}  // namespace moestro::orchestrator

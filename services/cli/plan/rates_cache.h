#pragma once
// Measured rates on disk, so that a second plan on the same machine measures nothing.

#include <filesystem>
#include <optional>
#include <string>

#include "common/planner/rates.h"
#include "common/status.h"

namespace moestro::cli {

/// Files named after a hash of the key, which they repeat. Anything may delete them; a damaged one counts as absent.
class RatesCache {
 public:
  /// An empty directory: nothing is kept.
  RatesCache(std::filesystem::path directory, std::string key);

  std::filesystem::path file() const { return file_; }
  std::optional<planner::Rates> read() const;
  Status write(const planner::Rates& rates) const;

 private:
  std::filesystem::path file_;
  std::string key_;
};

}  // namespace moestro::cli

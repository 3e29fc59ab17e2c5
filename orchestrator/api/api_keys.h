#pragma once
// Who may use the API. Keys are kept as SHA-256 hashes, in the file and in memory.

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"

namespace moestro::orchestrator {

class ApiKeys {
 public:
  struct Key {
    std::array<uint8_t, 32> hash{};
    std::string name;          ///< for logs; never the key
    std::string project;       ///< keys of one project share files, batches and cached prefixes
    uint32_t concurrency = 0;  ///< requests under way at once; 0: no limit
    bool admin = false;        ///< sees the files and batches of all projects
  };

  /// One key a line: `sha256:HEX NAME [concurrency=N] [project=NAME] [admin]`; `#` begins a remark. Without a project
  /// the key is one of its own, by its name. Refuses what it does not understand, naming the line, a file without keys,
  /// and a file that others than its owner's group may read.
  static Result<ApiKeys> load(const std::filesystem::path& path);
  static Result<ApiKeys> parse(std::string_view text, const std::string& where);

  /// The key that `Authorization: Bearer KEY` names; null if it is none of these. Takes the same time for every wrong
  /// key.
  const Key* find(std::string_view authorization) const;

 private:
  std::vector<Key> keys_;
};

}  // namespace moestro::orchestrator

#pragma once
// Which blobs of an unfinished pack are on disk. The journal is in the pack's directory until the manifest is written.
//
//   header  | magic 8 | key 8 | XXH3 of both 8 |           key: fingerprint of the checkpoint and the options
//   record  | blob 4 | slices 4 | XXH3-64 of each slice 8 * slices | XXH3 of the record 8 |      appended repeatedly
//
// A record is written only after its data has been synced. A torn record at the end is dropped.

#include <filesystem>
#include <map>
#include <optional>
#include <vector>

#include "store/pack/file.h"
#include "store/pack/manifest.h"

namespace moestro::store {

inline constexpr char kJournalName[] = "unfinished-pack.journal";

class Journal {
 public:
  using Hashes = std::vector<uint64_t>;

  /// Opens or creates the file of DIR's journal and locks it against other packers, who do nothing there without it.
  static Result<File> lock(const std::filesystem::path& dir);
  /// Reads it. If it is for another key, `restarted` is true and `finished` empty. It then stays until clear(), so that
  /// after a kill the data files are still known to be of another pack.
  static Result<Journal> open(File locked, uint64_t key, const Manifest& plan);

  const std::map<uint32_t, Hashes>& finished() const { return finished_; }
  bool restarted() const { return restarted_; }
  /// Forgets all records.
  Status clear();
  /// Appends records and syncs.
  Status append(const std::map<uint32_t, Hashes>& blobs);

 private:
  explicit Journal(File file, uint64_t key) : file_(std::move(file)), key_(key) {}
  Status load(const Manifest& plan);

  File file_;
  uint64_t key_;
  uint64_t end_ = 0;
  bool restarted_ = false;
  std::map<uint32_t, Hashes> finished_;
};

}  // namespace moestro::store

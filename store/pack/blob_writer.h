#pragma once
// Writes every blob of a plan that is not in the journal yet, in several threads, and commits them in groups: first the
// data is synced, then the journal. Blobs in the journal are read and compared first, because they may be old.

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "store/pack/blob_builder.h"
#include "store/pack/checkpoint.h"
#include "store/pack/journal.h"
#include "store/pack/pack_plan.h"
#include "store/pack/packer.h"

namespace moestro::store {

class BlobWriter {
 public:
  /// Copies the checksums of finished blobs into plan.manifest.
  BlobWriter(const Checkpoint& checkpoint, PackPlan& plan, const std::vector<File>& files, Journal& journal,
             const PackOptions& options, const PackObserver& observer);

  /// Reads the blobs in the journal. Blobs that differ from their checksums will be written again.
  void check_resumed();
  /// Bytes written by an earlier run; after check_resumed(), only those that are unchanged.
  uint64_t resumed_bytes() const { return resumed_bytes_; }
  uint64_t damaged_blobs() const { return damaged_; }
  /// Returns when everything is on disk and in the journal, or at the first error.
  Status write_all();
  /// After that: reads the source again. kCorrupt if a blob of it would be another one now.
  Status compare_again();

 private:
  void in_threads(size_t items, const std::function<void()>& work);
  void check_some();
  bool check_blob(uint32_t blob, std::vector<std::byte>& buffer) const;
  void build_each(const std::vector<uint32_t>& blobs, const std::function<Status(BlobBuilder&, uint32_t)>& with);
  Status write_blob(BlobBuilder& builder, uint32_t blob);
  Status compare_blob(BlobBuilder& builder, uint32_t blob) const;
  Status commit_locked();
  void fail(Status error);

  const Checkpoint& checkpoint_;
  PackPlan& plan_;
  const std::vector<File>& files_;
  const PackOptions& options_;
  const PackObserver& observer_;
  std::vector<uint32_t> known_, todo_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> stop_{false};
  unsigned threads_ = 1;
  uint64_t resumed_bytes_ = 0, damaged_ = 0;

  std::mutex mutex_;  // guards what follows
  Journal& journal_;
  std::map<uint32_t, Journal::Hashes> pending_;
  uint64_t pending_bytes_ = 0, done_bytes_ = 0;
  Status error_;
};

}  // namespace moestro::store

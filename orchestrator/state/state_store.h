#pragma once
// What survives the orchestrator: files and batches, the results of lines, and responses. Every call is durable when it
// returns, or has changed nothing; but when a connection breaks amid a call (kUnavailable) it may have been done, so
// each can be made again. Owned by one thread. Errors: kExhausted when disk or memory is full (trying again may help),
// kUnavailable while the state is away, kCorrupt when it is damaged, kIo.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "orchestrator/state/conflict.h"
#include "orchestrator/state/records.h"
#include "orchestrator/state/shared_lines.h"

namespace moestro::orchestrator {

/// Part of a list, newest first unless `ascending`.
struct ListQuery {
  std::string after = {};    ///< an id, or that of a file that was removed: begin after it; empty: from the beginning
  std::string purpose = {};  ///< of files; empty: all
  std::optional<std::string> owner = {};  ///< nullopt: all
  int64_t limit = 20;
  bool ascending = false;
};

/// Of removed files, the last that a page may begin after.
inline constexpr int kRemovedMax = 20'000;

class StateStore {
 public:
  virtual ~StateStore() = default;

  /// Null: only this orchestrator uses this state.
  virtual SharedLines* shared() { return nullptr; }

  /// Its bytes are in the FileStore that belongs to this state.
  virtual Status put_file(const FileRecord& file) = 0;
  virtual Result<std::optional<FileRecord>> file(const std::string& id) = 0;
  /// kNotFound: there is no `after`.
  virtual Result<std::vector<FileRecord>> files(const ListQuery& query) = 0;
  /// Files that have expired and are no input of an unfinished batch, at most 100.
  virtual Result<std::vector<FileRecord>> expired_files(int64_t now) = 0;
  /// kConflict, with the batch's name, if it is the input of an unfinished batch.
  virtual Status remove_file(const std::string& id) = 0;

  /// Does nothing if it exists.
  virtual Status add_batch(const BatchRecord& batch) = 0;
  /// Stores a batch's new record; its line counts and tokens are unchanged, except `total`. kConflict if its status is
  /// no longer `from`, if another orchestrator leads it, or if it is to run and not all lines were offered. Once it has
  /// an output file, no more results are accepted.
  virtual Status change_batch(const BatchRecord& batch, BatchStatus from) = 0;
  virtual Result<std::optional<BatchRecord>> batch(const std::string& id) = 0;
  /// kNotFound: there is no `after`.
  virtual Result<std::vector<BatchRecord>> batches(const ListQuery& query) = 0;
  /// Unfinished batches, oldest first.
  virtual Result<std::vector<BatchRecord>> unfinished() = 0;
  /// The number of batches of each status.
  virtual Result<std::vector<uint64_t>> count_batches() = 0;

  /// Stores the results of lines that have none, and counts them in the batch. A line that has a result keeps it.
  /// Results of a batch whose files are being written, or that has ended, are dropped. Returns how many were stored,
  /// with those that an earlier call has stored whose answer was lost. kConflict, if the state is shared: the name of
  /// the batch's model belongs to another version (SharedLines), and nothing was stored.
  virtual Result<LineCounts> put_results(const std::string& batch, std::span<const LineResult> results) = 0;
  /// The lines that have results.
  virtual Result<std::vector<uint64_t>> lines_done(const std::string& batch) = 0;
  /// Results in the order of lines, from the one behind `after`.
  virtual Result<std::vector<LineResult>> results(const std::string& batch, uint64_t after, int64_t limit) = 0;
  /// Keeps it and forgets what is beyond the limits. kExhausted: it alone is beyond them. Nothing happens if it is
  /// there.
  virtual Status put_response(const ResponseRecord& response, const ResponseLimits& limits) = 0;
  virtual Result<std::optional<ResponseRecord>> response(const std::string& id) = 0;
  virtual Status remove_response(const std::string& id) = 0;

  /// What others keep here by name, the activation history of a model for one: bytes that this does not look into. The
  /// last one stays.
  virtual Status put_blob(const std::string& name, std::span<const std::byte> bytes) = 0;
  virtual Result<std::optional<std::vector<std::byte>>> blob(const std::string& name) = 0;
  /// In one step: the batch is over, and its files are there. Its results are in them, and tidy() may remove them from
  /// the state. kConflict as of change_batch.
  virtual Status finish(const BatchRecord& batch, BatchStatus from, std::span<const FileRecord> files) = 0;
  /// Removes a piece of the results that are kept no longer. True if there are more: call it again.
  virtual Result<bool> tidy() { return false; }
  /// kExhausted: no file may be written next to the state, because its disk is nearly full.
  virtual Status has_room() { return Status::ok(); }
  /// kExhausted: there is no room for this batch's files, of which nothing is written yet.
  virtual Status has_room_for_files(const std::string&) { return Status::ok(); }
};

}  // namespace moestro::orchestrator

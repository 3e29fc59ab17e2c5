#pragma once
// What survives the orchestrator: files and batches, and the results of lines. Every call is durable when it returns, or has changed nothing.
// Owned by one thread. Errors: kExhausted when the disk is full (trying again may help), kCorrupt when the state is damaged, kIo.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"
#include "orchestrator/state/records.h"

namespace moestro::orchestrator {

/// Part of a list, newest first unless `ascending`.
struct ListQuery {
  std::string after = {};    ///< an id: what follows it; empty: from the beginning
  std::string purpose = {};  ///< of files; empty: all
  int64_t limit = 20;
  bool ascending = false;
};

class StateStore {
 public:
  virtual ~StateStore() = default;

  virtual Status put_file(const FileRecord& file) = 0;
  virtual Result<std::optional<FileRecord>> file(const std::string& id) = 0;
  virtual Result<std::vector<FileRecord>> files(const ListQuery& query) = 0;
  /// Files whose expires_at has come.
  virtual Result<std::vector<FileRecord>> expired_files(int64_t now) = 0;
  virtual Status remove_file(const std::string& id) = 0;

  /// A new batch, or a known one's new state; line counts and tokens of a known one stay as they are, but for `total`.
  virtual Status put_batch(const BatchRecord& batch) = 0;
  virtual Result<std::optional<BatchRecord>> batch(const std::string& id) = 0;
  virtual Result<std::vector<BatchRecord>> batches(const ListQuery& query) = 0;
  /// Those that are not over, oldest first.
  virtual Result<std::vector<BatchRecord>> unfinished() = 0;
  /// How many batches have each status, by its number.
  virtual Result<std::vector<uint64_t>> count_batches() = 0;

  /// Keeps the results of lines that have none, and counts them in the batch. A line that has one keeps it.
  virtual Status put_results(const std::string& batch, std::span<const LineResult> results) = 0;
  /// The lines that have results.
  virtual Result<std::vector<uint64_t>> lines_done(const std::string& batch) = 0;
  /// Results in the order of lines, from the one behind `after`.
  virtual Result<std::vector<LineResult>> results(const std::string& batch, uint64_t after, int64_t limit) = 0;
  /// What others keep here by name, the activation history of a model for one: bytes that this does not look into. The last one stays.
  virtual Status put_blob(const std::string& name, std::span<const std::byte> bytes) = 0;
  virtual Result<std::optional<std::vector<std::byte>>> blob(const std::string& name) = 0;
  /// In one step: the batch is over, its files are there, its results are in them and kept no longer.
  virtual Status finish(const BatchRecord& batch, std::span<const FileRecord> files) = 0;
};

}  // namespace moestro::orchestrator

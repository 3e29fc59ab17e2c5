#pragma once
// The state in one SQLite file: WAL, synchronous=FULL. A second opener is refused.

#include <deque>
#include <filesystem>
#include <functional>
#include <memory>

#include "common/shm/file_lock.h"
#include "orchestrator/state/database.h"
#include "orchestrator/state/room_reserve.h"
#include "orchestrator/state/state_store.h"

namespace moestro::orchestrator {

class SqliteStore final : public StateStore {
 public:
  /// Creates the file if it does not exist, and its directory (0700) if only that is missing. Errors: kUnavailable
  /// while another orchestrator has it, kCorrupt, kUnsupported if a later version has written it. A refused file is not
  /// changed.
  static Result<std::unique_ptr<SqliteStore>> open(const std::filesystem::path& path);
  /// What of open()'s errors can be seen at once: a place where nothing can be made, a file that is no state, another
  /// orchestrator. Leaves nothing behind and does not read the file to its end. Waits for a lock as open() does. A full
  /// disk is no error: a state may come later.
  static Status look_at(const std::filesystem::path& path);

  Status put_file(const FileRecord& file) override;
  Result<std::optional<FileRecord>> file(const std::string& id) override;
  Result<std::vector<FileRecord>> files(const ListQuery& query) override;
  Result<std::vector<FileRecord>> expired_files(int64_t now) override;
  Status remove_file(const std::string& id) override;
  Status add_batch(const BatchRecord& batch) override;
  Status change_batch(const BatchRecord& batch, BatchStatus from) override;
  Result<std::optional<BatchRecord>> batch(const std::string& id) override;
  Result<std::vector<BatchRecord>> batches(const ListQuery& query) override;
  Result<std::vector<BatchRecord>> unfinished() override;
  Result<std::vector<uint64_t>> count_batches() override { return counts_; }
  Result<LineCounts> put_results(const std::string& batch, std::span<const LineResult> results) override;
  Result<std::vector<uint64_t>> lines_done(const std::string& batch) override;
  Result<std::vector<LineResult>> results(const std::string& batch, uint64_t after, int64_t limit) override;
  Status put_response(const ResponseRecord& response, const ResponseLimits& limits) override;
  Result<std::optional<ResponseRecord>> response(const std::string& id) override;
  Status remove_response(const std::string& id) override;
  Status put_blob(const std::string& name, std::span<const std::byte> bytes) override;
  Result<std::optional<std::vector<std::byte>>> blob(const std::string& name) override;
  Status finish(const BatchRecord& batch, BatchStatus from, std::span<const FileRecord> files) override;
  Result<bool> tidy() override;
  Status has_room() override;

  /// For tests: limits the file to this many pages, like a full disk.
  Status limit_pages(int64_t pages);

 private:
  SqliteStore(shm::FileLock lock, std::unique_ptr<Database> database)
      : lock_(std::move(lock)), database_(std::move(database)), reserve_(database_->path() + ".reserve") {}
  /// SQL of what is_over() says of a batch's status: "status IN (...)".
  static const std::string kIsOpen;
  static constexpr int kLineBits = 32;  ///< of results' rows: (number of the batch << 32) + line
  Status insert_file(const FileRecord& file);
  Status update_batch(const BatchRecord& batch, BatchStatus from);
  void moved(BatchStatus from, BatchStatus to);
  Status read_counts();
  // sqlite_room.cc
  Status shrink_journal();
  bool hold_reserve();
  bool give_up_reserve();
  void begin_journal();
  Status freeing(const std::function<Status()>& change);
  Status read_ended();
  // sqlite_responses.cc
  Result<uint64_t> forget_responses(const ResponseLimits& limits, uint64_t bytes);
  Status read_response_bytes();
  Result<int64_t> number_of(const std::string& batch);
  /// Whether the batch takes results: its files are not being written and it has not ended.
  Result<bool> takes_results(int64_t number);

  shm::FileLock lock_;
  std::unique_ptr<Database> database_;
  RoomReserve reserve_;
  std::deque<int64_t> ended_;  ///< numbers of batches that are over and still have results
  /// Batches by status, so that nobody has to count rows.
  std::vector<uint64_t> counts_ = std::vector<uint64_t>(kBatchStatuses);
  uint64_t response_bytes_ = 0;  ///< likewise
};

}  // namespace moestro::orchestrator

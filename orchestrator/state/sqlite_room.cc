// How SqliteStore uses its disk: what may still be written when that is full, and results that are kept no longer.

#include <filesystem>

#include "orchestrator/state/sqlite_store.h"

namespace moestro::orchestrator {

namespace {
constexpr int64_t kRowsOfAPiece = 1000;  ///< of results that are removed at once: others wait for that long
}

/// Copies the journal to the file, so that it takes no room. Without room for all of it that would leave the journal as
/// it is and the disk full.
Status SqliteStore::shrink_journal() {
  MOESTRO_ASSIGN_OR_RETURN(const int64_t pages, database_->integer("PRAGMA page_count"));
  MOESTRO_ASSIGN_OR_RETURN(const int64_t page_bytes, database_->integer("PRAGMA page_size"));
  std::error_code error;
  const auto size = std::filesystem::file_size(database_->path(), error);
  const auto room = error ? 0 : std::filesystem::space(database_->path(), error).available;
  if (error || static_cast<uint64_t>(pages * page_bytes) > size + room)
    return exhausted("there is no room to copy the journal");
  return database_->execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

bool SqliteStore::hold_reserve() {
  return reserve_.hold().is_ok() && database_->set_checkpoints(true).is_ok();
}

/// What its room was is for the journal alone then.
bool SqliteStore::give_up_reserve() {
  return database_->set_checkpoints(false).is_ok() && reserve_.give_up();
}

/// So that every start has a journal without leftovers of the one before, unless the disk is too full.
void SqliteStore::begin_journal() {
  if (!hold_reserve()) (void)database_->set_checkpoints(false).is_ok();
  (void)shrink_journal().is_ok();
}

/// Before a change that makes the state larger: the reserve comes first, so that there is one when the disk is full.
Status SqliteStore::has_room() {
  if (hold_reserve() || (shrink_journal().is_ok() && hold_reserve())) return Status::ok();
  return exhausted("the state " + database_->path() + ": its disk is full; free some room there");
}

/// A change after which there is more room, or that leads there: it may use the reserve.
Status SqliteStore::freeing(const std::function<Status()>& change) {
  (void)hold_reserve();
  Status changed = change();
  if (changed.code() != Code::kExhausted) return changed;
  if (give_up_reserve()) changed = change();
  if (changed.code() != Code::kExhausted || !shrink_journal().is_ok()) return changed;
  return change();
}

/// The results that earlier processes have not removed.
Status SqliteStore::read_ended() {
  MOESTRO_ASSIGN_OR_RETURN(Query next,
                           database_->prepare("SELECT row FROM results WHERE row >= ? ORDER BY row LIMIT 1"));
  for (int64_t number = 0;; ++number) {
    next.reset();
    MOESTRO_ASSIGN_OR_RETURN(const bool row, next.bind(1, number << kLineBits).step());
    if (!row) return Status::ok();
    number = next.integer(0) >> kLineBits;
    MOESTRO_ASSIGN_OR_RETURN(
        Query open, database_->prepare("SELECT 1 FROM batches WHERE number = ? AND " + kIsOpen));
    MOESTRO_ASSIGN_OR_RETURN(const bool is_open, open.bind(1, number).step());
    if (!is_open) ended_.push_back(number);
  }
}

Result<bool> SqliteStore::tidy() {
  if (ended_.empty()) return false;
  int64_t removed = 0;
  const Status done = freeing([&]() -> Status {
    MOESTRO_ASSIGN_OR_RETURN(
        Query remove, database_->prepare("DELETE FROM results WHERE row IN "
                                         "(SELECT row FROM results WHERE row >= ? AND row < ? ORDER BY row LIMIT ?)"));
    remove.bind(1, ended_.front() << kLineBits).bind(2, (ended_.front() + 1) << kLineBits).bind(3, kRowsOfAPiece);
    MOESTRO_RETURN_IF_ERROR(remove.run());
    removed = database_->changes();
    return Status::ok();
  });
  MOESTRO_RETURN_IF_ERROR(done);
  if (removed < kRowsOfAPiece) ended_.pop_front();
  return !ended_.empty();
}

}  // namespace moestro::orchestrator

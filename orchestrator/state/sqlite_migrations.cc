#include "orchestrator/state/sqlite_migrations.h"

#include <array>

namespace moestro::orchestrator {
namespace {

/// Steps are only ever added at the end: those before have been done to files that exist.
constexpr std::array kSqliteSteps{
    // 1: numbers of batches are never used again: the rows of results are (number << 32) + line. The application id is
    // "MOES".
    R"sql(
CREATE TABLE files(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL,
  purpose TEXT NOT NULL, bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL);
CREATE TABLE batches(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, status INTEGER NOT NULL,
  outcome INTEGER NOT NULL, endpoint TEXT NOT NULL, model TEXT NOT NULL, input_file TEXT NOT NULL,
  completion_window TEXT NOT NULL, metadata TEXT NOT NULL, output_file TEXT NOT NULL, error_file TEXT NOT NULL,
  created_at INTEGER NOT NULL, in_progress_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  finalizing_at INTEGER NOT NULL, completed_at INTEGER NOT NULL, failed_at INTEGER NOT NULL,
  expired_at INTEGER NOT NULL, cancelling_at INTEGER NOT NULL, cancelled_at INTEGER NOT NULL,
  output_seconds INTEGER NOT NULL, error_code TEXT NOT NULL, error_message TEXT NOT NULL,
  total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  prompt_tokens INTEGER NOT NULL DEFAULT 0, cached_tokens INTEGER NOT NULL DEFAULT 0,
  completion_tokens INTEGER NOT NULL DEFAULT 0);
CREATE INDEX batches_by_status ON batches(status);
CREATE TABLE results(row INTEGER PRIMARY KEY, good INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL,
  cached_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, text TEXT NOT NULL);
PRAGMA application_id = 1297040723;
)sql",
    // 2: some files of version 1 have it.
    "CREATE TABLE IF NOT EXISTS blobs(name TEXT PRIMARY KEY, bytes BLOB NOT NULL);",
    // 3: files and batches from before are nobody's.
    R"sql(
ALTER TABLE files ADD COLUMN owner TEXT NOT NULL DEFAULT '';
ALTER TABLE batches ADD COLUMN owner TEXT NOT NULL DEFAULT '';
CREATE INDEX files_by_owner ON files(owner, number);
CREATE INDEX batches_by_owner ON batches(owner, number);
)sql",
    // 4: of files from before, nobody knows the checksum.
    "ALTER TABLE files ADD COLUMN checksum TEXT NOT NULL DEFAULT '';",
    // 5: responses.
    "CREATE TABLE responses(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, "
    "created_at INTEGER NOT NULL, bytes INTEGER NOT NULL, text TEXT NOT NULL);",
    // 6: where deleted files were in the list, so that a page may begin after one.
    "CREATE TABLE removed(place INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, number INTEGER NOT NULL);",
};

}  // namespace

int64_t sqlite_version() {
  return kSqliteSteps.size();
}

Status migrate(Database& database, int64_t version) {
  for (size_t done = static_cast<size_t>(version); done < kSqliteSteps.size(); ++done) {
    MOESTRO_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(database));
    MOESTRO_RETURN_IF_ERROR(database.execute(kSqliteSteps[done]));
    MOESTRO_RETURN_IF_ERROR(database.execute(("PRAGMA user_version = " + std::to_string(done + 1)).c_str()));
    MOESTRO_RETURN_IF_ERROR(transaction.commit());
  }
  return Status::ok();
}

}  // namespace moestro::orchestrator

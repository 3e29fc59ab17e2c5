// Opening a state file: whose it is, whether it is whole, and what is in a new one.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "orchestrator/state/sqlite_store.h"

namespace moestro::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kApplication = 0x4D4F4553;  // "MOES", in SQLite's header
constexpr int64_t kVersion = 1;               // of the tables below

/// Numbers of batches are never used again: the rows of results are (number << 32) + line.
constexpr const char* kTables = R"sql(
BEGIN IMMEDIATE;
CREATE TABLE files(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, purpose TEXT NOT NULL,
  bytes INTEGER NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL);
CREATE TABLE batches(number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, status INTEGER NOT NULL, outcome INTEGER NOT NULL,
  endpoint TEXT NOT NULL, model TEXT NOT NULL, input_file TEXT NOT NULL, completion_window TEXT NOT NULL, metadata TEXT NOT NULL,
  output_file TEXT NOT NULL, error_file TEXT NOT NULL,
  created_at INTEGER NOT NULL, in_progress_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, finalizing_at INTEGER NOT NULL,
  completed_at INTEGER NOT NULL, failed_at INTEGER NOT NULL, expired_at INTEGER NOT NULL, cancelling_at INTEGER NOT NULL,
  cancelled_at INTEGER NOT NULL, output_seconds INTEGER NOT NULL, error_code TEXT NOT NULL, error_message TEXT NOT NULL,
  total INTEGER NOT NULL DEFAULT 0, completed INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  prompt_tokens INTEGER NOT NULL DEFAULT 0, cached_tokens INTEGER NOT NULL DEFAULT 0, completion_tokens INTEGER NOT NULL DEFAULT 0);
CREATE INDEX batches_by_status ON batches(status);
CREATE TABLE results(row INTEGER PRIMARY KEY, good INTEGER NOT NULL, prompt_tokens INTEGER NOT NULL, cached_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL, text TEXT NOT NULL);
PRAGMA application_id = 1297040723;
PRAGMA user_version = 1;
COMMIT;
)sql";

/// A file of version 1 may lack them, and a program that does not know them leaves them alone.
constexpr const char* kLaterTables = "CREATE TABLE IF NOT EXISTS blobs(name TEXT PRIMARY KEY, bytes BLOB NOT NULL)";

/// A killed orchestrator's lock is free as soon as the kernel has taken its process down.
Status take_lock(shm::FileLock& lock, const fs::path& path) {
  constexpr auto kWait = std::chrono::seconds(5);
  for (const auto end = std::chrono::steady_clock::now() + kWait;;) {
    MOESTRO_ASSIGN_OR_RETURN(const bool taken, lock.try_lock());
    if (taken) return Status::ok();
    if (std::chrono::steady_clock::now() >= end)
      return invalid_argument("the state " + path.string() + " belongs to another orchestrator that is running; stop that one, or give this one its own --state");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Status make_directory_of(const fs::path& path) {
  std::error_code error;
  const fs::path directory = path.parent_path();
  if (directory.empty() || fs::is_directory(directory, error)) return Status::ok();
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return io_error("cannot make " + directory.string() + " for the state", errno);
  return Status::ok();
}

/// That the name of a new file survives as its bytes do.
Status sync_directory_of(const fs::path& path) {
  const fs::path directory = path.has_parent_path() ? path.parent_path() : fs::path(".");
  const shm::UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return io_error("cannot sync " + directory.string(), errno);
  return Status::ok();
}

Status check_whole(const Database& database) {
  MOESTRO_ASSIGN_OR_RETURN(Query check, database.prepare("PRAGMA quick_check(1)"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, check.step());
  if (row && check.text(0) == "ok") return Status::ok();
  return corrupt("the state " + database.path() + ": it is damaged (" + check.text(0) + "); put back a copy, or move it away to begin anew");
}

Status check_ours(Database& database) {
  MOESTRO_ASSIGN_OR_RETURN(const int64_t application, database.integer("PRAGMA application_id"));
  MOESTRO_ASSIGN_OR_RETURN(const int64_t version, database.integer("PRAGMA user_version"));
  MOESTRO_ASSIGN_OR_RETURN(const int64_t tables, database.integer("SELECT count(*) FROM sqlite_master"));
  const bool fresh = application == 0 && version == 0 && tables == 0;
  if (!fresh && application != kApplication)
    return invalid_argument("the state " + database.path() + " is another program's database; give another --state");
  if (version > kVersion)
    return unsupported("the state " + database.path() + " has version " + std::to_string(version) + ", written by a later Moestro; this one knows up to " +
                       std::to_string(kVersion) + ": run the later one, or give another --state");
  MOESTRO_RETURN_IF_ERROR(check_whole(database));
  // Exclusive: the journal's index stays in this process, so any file system will do.
  MOESTRO_RETURN_IF_ERROR(database.execute("PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -4096;"));
  if (fresh) MOESTRO_RETURN_IF_ERROR(database.execute(kTables));
  return database.execute(kLaterTables);
}

}  // namespace

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const fs::path& path) {
  MOESTRO_RETURN_IF_ERROR(make_directory_of(path));
  MOESTRO_ASSIGN_OR_RETURN(shm::FileLock lock, shm::FileLock::open(path.string() + ".lock", /*create=*/true, 0600));
  MOESTRO_RETURN_IF_ERROR(take_lock(lock, path));
  MOESTRO_ASSIGN_OR_RETURN(auto database, Database::open(path.string()));
  MOESTRO_RETURN_IF_ERROR(check_ours(*database));
  MOESTRO_RETURN_IF_ERROR(sync_directory_of(path));
  std::unique_ptr<SqliteStore> store(new SqliteStore(std::move(lock), std::move(database)));
  MOESTRO_RETURN_IF_ERROR(store->read_counts());
  return store;
}

Status SqliteStore::limit_pages(int64_t pages) {
  return database_->execute(("PRAGMA max_page_count = " + std::to_string(pages)).c_str());
}

}  // namespace moestro::orchestrator

// Opening a state file: whose it is, and whether it is whole.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "orchestrator/state/sqlite_migrations.h"
#include "orchestrator/state/sqlite_store.h"
#include "orchestrator/state/wal_check.h"

namespace moestro::orchestrator {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kApplication = 0x4D4F4553;  // "MOES", in SQLite's header

/// A killed orchestrator's lock is free as soon as the kernel has taken its process down.
Status take_lock(shm::FileLock& lock, const fs::path& path) {
  constexpr auto kWait = std::chrono::seconds(5);
  for (const auto end = std::chrono::steady_clock::now() + kWait;;) {
    MOESTRO_ASSIGN_OR_RETURN(const bool taken, lock.try_lock());
    if (taken) return Status::ok();
    if (std::chrono::steady_clock::now() >= end)
      return invalid_argument(
          "the state " + path.string() +
          " belongs to another orchestrator that is running; stop that one, or give this one its own --state");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Status make_directory_of(const fs::path& path) {
  std::error_code error;
  const fs::path directory = path.parent_path();
  if (directory.empty() || fs::is_directory(directory, error)) return Status::ok();
  if (::mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return opening_error("cannot make " + directory.string() + " for the state", errno);
  return Status::ok();
}

/// Whether open() could make its files there, by this user: that is tried, and what was made is removed again.
Status try_directory_of(const fs::path& path) {
  const fs::path directory = path.parent_path();
  std::error_code error;
  const bool there = fs::exists(directory, error);
  const fs::path at = there ? directory : directory.parent_path();  // open() makes one level
  if (there && !fs::is_directory(directory, error))
    return invalid_argument("the state " + path.string() + ": " + directory.string() + " is not a directory");
  if (!fs::is_directory(at, error))
    return not_found("the state " + path.string() + ": there is no directory " + at.string() + "; make it first");
  if (::access(at.c_str(), W_OK | X_OK) != 0)
    return opening_error("the state " + path.string() + ": cannot write to " + at.string(), errno);
  MOESTRO_RETURN_IF_ERROR(make_directory_of(path));
  std::string file = path.string() + ".XXXXXX";
  Status made = Status::ok();
  if (const shm::UniqueFd fd(::mkostemp(file.data(), O_CLOEXEC)); fd) ::unlink(file.c_str());
  else made = opening_error("the state " + path.string() + ": cannot make a file in " + directory.string(), errno);
  if (!there) ::rmdir(directory.c_str());
  return made;
}

/// By its first bytes, as SQLite defines them. An empty file is a new state.
Status check_header(const fs::path& path) {
  constexpr std::string_view kSqliteMagic("SQLite format 3\0", 16);
  const shm::UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) return opening_error("cannot open the state " + path.string(), errno);
  char first[kSqliteMagic.size()] = {};
  const ssize_t read = ::pread(fd.get(), first, sizeof first, 0);
  if (read < 0) return opening_error("cannot read the state " + path.string(), errno);
  if (read == 0 || std::string_view(first, sizeof first) == kSqliteMagic) return Status::ok();
  return invalid_argument("the state " + path.string() +
                          ": it is not a state file, or its beginning is damaged; give another --state");
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
  return corrupt("the state " + database.path() + ": it is damaged (" + check.text(0) +
                 "); put back a copy, or move it away to begin anew");
}

Status check_ours(Database& database) {
  // The journal's index stays in this process: any file system will do, and a full one can be read.
  MOESTRO_RETURN_IF_ERROR(database.execute("PRAGMA locking_mode = EXCLUSIVE"));
  MOESTRO_ASSIGN_OR_RETURN(const int64_t application, database.integer("PRAGMA application_id"));
  MOESTRO_ASSIGN_OR_RETURN(const int64_t version, database.integer("PRAGMA user_version"));
  MOESTRO_ASSIGN_OR_RETURN(const int64_t tables, database.integer("SELECT count(*) FROM sqlite_master"));
  const bool fresh = application == 0 && version == 0 && tables == 0;
  if (!fresh && application != kApplication)
    return invalid_argument("the state " + database.path() + " is another program's database; give another --state");
  if (version > sqlite_version())
    return unsupported("the state " + database.path() + " has version " + std::to_string(version) +
                       ", written by a later Moestro; this one knows up to " + std::to_string(sqlite_version()) +
                       ": run the later one, or give another --state");
  MOESTRO_RETURN_IF_ERROR(check_whole(database));
  MOESTRO_RETURN_IF_ERROR(
      database.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -4096; "
                       // What is deleted must not be written once more, and a large journal must not stay large.
                       "PRAGMA secure_delete = FAST; PRAGMA journal_size_limit = 8388608;"));
  return migrate(database, version);
}

}  // namespace

Result<std::unique_ptr<SqliteStore>> SqliteStore::open(const fs::path& path) {
  MOESTRO_RETURN_IF_ERROR(make_directory_of(path));
  MOESTRO_ASSIGN_OR_RETURN(shm::FileLock lock, shm::FileLock::open(path.string() + ".lock", /*create=*/true, 0600));
  MOESTRO_RETURN_IF_ERROR(take_lock(lock, path));
  MOESTRO_RETURN_IF_ERROR(check_wal(path));
  MOESTRO_ASSIGN_OR_RETURN(auto database, Database::open(path.string()));
  MOESTRO_RETURN_IF_ERROR(check_ours(*database));
  MOESTRO_RETURN_IF_ERROR(sync_directory_of(path));
  std::unique_ptr<SqliteStore> store(new SqliteStore(std::move(lock), std::move(database)));
  store->begin_journal();
  MOESTRO_RETURN_IF_ERROR(store->read_counts());
  MOESTRO_RETURN_IF_ERROR(store->read_response_bytes());
  MOESTRO_RETURN_IF_ERROR(store->read_ended());
  return store;
}

Status SqliteStore::look_at(const fs::path& path) {
  const Status tried = try_directory_of(path);
  if (!tried.is_ok() && tried.code() != Code::kExhausted) return tried;
  std::error_code error;
  const fs::path lock_file = path.string() + ".lock";
  if (fs::exists(lock_file, error)) {
    MOESTRO_ASSIGN_OR_RETURN(shm::FileLock lock, shm::FileLock::open(lock_file, /*create=*/false));
    MOESTRO_RETURN_IF_ERROR(take_lock(lock, path));
  }
  return fs::exists(fs::symlink_status(path, error)) ? check_header(path) : Status::ok();
}

Status SqliteStore::limit_pages(int64_t pages) {
  return database_->execute(("PRAGMA max_page_count = " + std::to_string(pages)).c_str());
}

}  // namespace moestro::orchestrator

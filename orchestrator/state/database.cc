#include "orchestrator/state/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace moestro::orchestrator {

namespace {
bool is_full(int error) { return error == ENOSPC || error == EDQUOT; }
}  // namespace

Status opening_error(std::string what, int errno_value) {
  Status error = io_error(std::move(what), errno_value);
  return is_full(errno_value) ? exhausted(error.message() + "; free some room there") : error;
}

Query::Query(Query&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}
Query::~Query() { sqlite3_finalize(statement_); }

Query& Query::bind(int at, int64_t value) {
  sqlite3_bind_int64(statement_, at,
                     value);  // can fail only by a wrong position, and then so does the statement's test
  return *this;
}

Query& Query::bind(int at, std::string_view text) {
  sqlite3_bind_text64(statement_, at, text.data() == nullptr ? "" : text.data(), text.size(), SQLITE_STATIC,
                      SQLITE_UTF8);
  return *this;
}

Query& Query::bind(int at, std::span<const std::byte> bytes) {
  sqlite3_bind_blob64(statement_, at, bytes.empty() ? "" : static_cast<const void*>(bytes.data()), bytes.size(),
                      SQLITE_STATIC);
  return *this;
}

Result<bool> Query::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_.error(code);
}

void Query::reset() { sqlite3_reset(statement_); }

int64_t Query::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Query::text(int column) const {
  const auto* bytes = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<size_t>(sqlite3_column_bytes(statement_, column))};
}

std::vector<std::byte> Query::bytes(int column) const {
  const auto* first = static_cast<const std::byte*>(sqlite3_column_blob(statement_, column));
  if (first == nullptr) return {};
  return {first, first + sqlite3_column_bytes(statement_, column)};
}

Result<std::unique_ptr<Database>> Database::open(const std::string& path) {
  // SQLite gives its journal the rights of the file.
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return opening_error("cannot open the state " + path, errno);
  ::close(fd);
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  std::unique_ptr<Database> database(new Database(path, handle));
  if (code != SQLITE_OK) return database->error(code);
  sqlite3_extended_result_codes(handle, 1);
  return database;
}

Database::~Database() { sqlite3_close_v2(handle_); }

Status Database::execute(const char* sql) {
  const int code = sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr);
  return code == SQLITE_OK ? Status::ok() : error(code);
}

Result<Query> Database::prepare(const std::string& sql) const {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr);
  if (code != SQLITE_OK) return error(code);
  return Query(*this, statement);
}

Result<int64_t> Database::integer(const char* sql) const {
  MOESTRO_ASSIGN_OR_RETURN(Query query, prepare(sql));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.step());
  return row ? query.integer(0) : 0;
}

Status Database::set_checkpoints(bool on) {
  if (std::exchange(checkpoints_, on) == on) return Status::ok();
  sqlite3_db_config(handle_, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on ? 0 : 1, nullptr);
  return execute(on ? "PRAGMA wal_autocheckpoint = 1000" : "PRAGMA wal_autocheckpoint = 0");
}

int64_t Database::changes() const { return sqlite3_changes64(handle_); }

Status Database::error(int code) const {
  const std::string where = "the state " + path_ + ": ";
  const std::string what = handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_);
  const int system = handle_ == nullptr ? 0 : sqlite3_system_errno(handle_);
  const int kind = code & 0xFF;
  const bool disk = kind == SQLITE_FULL || ((kind == SQLITE_IOERR || kind == SQLITE_CANTOPEN) && is_full(system));
  if (disk) return exhausted(where + "its disk is full; free some room there");
  if (kind == SQLITE_CORRUPT)
    return corrupt(where + "it is damaged (" + what + "); put back a copy, or move it away to begin anew");
  if (kind == SQLITE_NOTADB)
    return invalid_argument(
        where + "it is not a state file, or its beginning is damaged; put back a copy, or move it away to begin anew");
  if (kind == SQLITE_BUSY || kind == SQLITE_LOCKED) return unavailable(where + "another program has it open");
  return io_error(where + what + (system != 0 ? std::string(" (") + std::strerror(system) + ")" : ""));
}

Result<Transaction> Transaction::begin(Database& database) {
  MOESTRO_RETURN_IF_ERROR(database.execute("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_ != nullptr)
    (void)database_->execute("ROLLBACK").is_ok();  // SQLite may have done it: then there is none
}

Status Transaction::commit() {
  MOESTRO_RETURN_IF_ERROR(database_->execute("COMMIT"));
  database_ = nullptr;
  return Status::ok();
}

}  // namespace moestro::orchestrator

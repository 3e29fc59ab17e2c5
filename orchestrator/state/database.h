#pragma once
// SQLite, with Status for errors. One thread.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace moestro::orchestrator {

class Database;

/// An error of opening or creating a file of the state: kExhausted if its disk is full.
Status opening_error(std::string what, int errno_value);

/// One statement with its values. Positions of bind count from 1, those of columns from 0, as in SQLite.
class Query {
 public:
  Query(Query&& other) noexcept;
  Query& operator=(Query&&) = delete;
  ~Query();

  Query& bind(int at, int64_t value);
  Query& bind(int at, uint64_t value) { return bind(at, static_cast<int64_t>(value)); }
  /// The text must outlive the query's next step.
  Query& bind(int at, std::string_view text);
  /// Likewise.
  Query& bind(int at, std::span<const std::byte> bytes);
  /// True: there is a row; false: there are no more.
  Result<bool> step();
  /// For statements that return no rows.
  Status run() { return step().status(); }
  /// Prepares it to be bound and stepped again.
  void reset();

  int64_t integer(int column) const;
  uint64_t count(int column) const { return static_cast<uint64_t>(integer(column)); }
  std::string text(int column) const;
  std::vector<std::byte> bytes(int column) const;

 private:
  friend class Database;
  Query(const Database& database, sqlite3_stmt* statement) : database_(database), statement_(statement) {}
  const Database& database_;
  sqlite3_stmt* statement_;
};

class Database {
 public:
  /// Creates the file (0600) if it does not exist.
  static Result<std::unique_ptr<Database>> open(const std::string& path);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Status execute(const char* sql);
  Result<Query> prepare(const std::string& sql) const;
  /// The first column of the first row.
  Result<int64_t> integer(const char* sql) const;
  /// Whether commits and the end copy the journal to the file, which may make it larger.
  Status set_checkpoints(bool on);
  /// The number of rows that the last statement changed.
  int64_t changes() const;
  /// `code` is SQLite's.
  Status error(int code) const;
  const std::string& path() const { return path_; }

 private:
  Database(std::string path, sqlite3* handle) : path_(std::move(path)), handle_(handle) {}
  std::string path_;
  sqlite3* handle_;
  bool checkpoints_ = true;
};

/// Rolled back unless it was committed.
class Transaction {
 public:
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;
};

}  // namespace moestro::orchestrator

#include "orchestrator/state/sqlite_store.h"

namespace moestro::orchestrator {
namespace {

constexpr const char* kFileColumns = "id, name, purpose, bytes, created_at, expires_at, checksum, owner";
constexpr const char* kBatchColumns =
    "id, status, outcome, endpoint, model, input_file, completion_window, metadata, output_file, error_file, "
    "created_at, in_progress_at, expires_at, "
    "finalizing_at, completed_at, failed_at, expired_at, cancelling_at, cancelled_at, output_seconds, error_code, "
    "error_message, total, completed, failed, "
    "prompt_tokens, cached_tokens, completion_tokens, owner";

FileRecord file_of(const Query& row) {
  return {row.text(0), row.text(1), row.text(2), row.count(3), row.integer(4), row.integer(5), row.text(6),
          row.text(7)};
}

BatchRecord batch_of(const Query& row) {
  BatchRecord b;
  b.id = row.text(0);
  b.status = static_cast<BatchStatus>(row.integer(1) & 7);
  b.outcome = static_cast<BatchStatus>(row.integer(2) & 7);
  int column = 3;
  for (std::string* text :
       {&b.endpoint, &b.model, &b.input_file, &b.completion_window, &b.metadata, &b.output_file, &b.error_file})
    *text = row.text(column++);
  for (int64_t* at : {&b.created_at, &b.in_progress_at, &b.expires_at, &b.finalizing_at, &b.completed_at, &b.failed_at,
                      &b.expired_at, &b.cancelling_at, &b.cancelled_at, &b.output_seconds})
    *at = row.integer(column++);
  b.error_code = row.text(column++);
  b.error_message = row.text(column++);
  for (uint64_t* n : {&b.total, &b.completed, &b.failed, &b.prompt_tokens, &b.cached_tokens, &b.completion_tokens})
    *n = row.count(column++);
  b.owner = row.text(column);
  return b;
}

template <typename Record, typename Read>
Result<std::vector<Record>> all_rows(Query& query, Read read) {
  std::vector<Record> rows;
  for (;;) {
    MOESTRO_ASSIGN_OR_RETURN(const bool more, query.step());
    if (!more) return rows;
    rows.push_back(read(query));
  }
}

/// The number of an id of `table`, or of a removed file.
Result<int64_t> place_of(const Database& database, const std::string& table, const std::string& id) {
  std::string sql = "SELECT number FROM " + table + " WHERE id = ?1";
  if (table == "files") sql += " UNION ALL SELECT number FROM removed WHERE id = ?1";
  MOESTRO_ASSIGN_OR_RETURN(Query query, database.prepare(sql));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.bind(1, id).step());
  if (!row) return not_found("there is no '" + id.substr(0, 80) + "' to begin after");
  return query.integer(0);
}

/// Of `table` the page that was asked for.
Result<Query> page_of(const Database& database, const std::string& table, const char* columns, const ListQuery& query) {
  int64_t after = query.ascending ? 0 : INT64_MAX;
  if (!query.after.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(after, place_of(database, table, query.after));
  }
  std::string sql = std::string("SELECT ") + columns + " FROM " + table + " WHERE number " +
                    (query.ascending ? ">" : "<") + " ?1";
  if (!query.purpose.empty()) sql += " AND purpose = ?2";
  if (query.owner) sql += " AND owner = ?3";
  sql += std::string(" ORDER BY number ") + (query.ascending ? "ASC" : "DESC") + " LIMIT ?4";
  MOESTRO_ASSIGN_OR_RETURN(Query rows, database.prepare(sql));
  rows.bind(1, after).bind(4, query.limit);
  if (!query.purpose.empty()) rows.bind(2, query.purpose);
  if (query.owner) rows.bind(3, *query.owner);
  return rows;
}

}  // namespace

const std::string SqliteStore::kIsOpen = [] {
  std::string list;
  for (size_t s = 0; s < kBatchStatuses; ++s)
    if (!is_over(static_cast<BatchStatus>(s))) list += (list.empty() ? "" : ", ") + std::to_string(s);
  return "status IN (" + list + ")";
}();

Status SqliteStore::insert_file(const FileRecord& file) {
  MOESTRO_ASSIGN_OR_RETURN(
      Query query, database_->prepare(
                       "INSERT OR IGNORE INTO files(id, name, purpose, bytes, created_at, expires_at, checksum, owner) "
                       "VALUES(?, ?, ?, ?, ?, ?, ?, ?)"));
  return query.bind(1, file.id)
      .bind(2, file.name)
      .bind(3, file.purpose)
      .bind(4, file.bytes)
      .bind(5, file.created_at)
      .bind(6, file.expires_at)
      .bind(7, file.checksum)
      .bind(8, file.owner)
      .run();
}

Status SqliteStore::put_file(const FileRecord& file) {
  MOESTRO_RETURN_IF_ERROR(has_room());
  return insert_file(file);
}

Result<std::optional<FileRecord>> SqliteStore::file(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(
      Query query, database_->prepare(std::string("SELECT ") + kFileColumns + " FROM files WHERE id = ?"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.bind(1, id).step());
  return row ? std::optional(file_of(query)) : std::nullopt;
}

Result<std::vector<FileRecord>> SqliteStore::files(const ListQuery& query) {
  MOESTRO_ASSIGN_OR_RETURN(Query rows, page_of(*database_, "files", kFileColumns, query));
  return all_rows<FileRecord>(rows, file_of);
}

Result<std::vector<FileRecord>> SqliteStore::expired_files(int64_t now) {
  MOESTRO_ASSIGN_OR_RETURN(
      Query rows, database_->prepare(std::string("SELECT ") + kFileColumns +
                                     " FROM files WHERE expires_at > 0 AND expires_at <= ? AND id NOT IN "
                                     "(SELECT input_file FROM batches WHERE " + kIsOpen + ") LIMIT 100"));
  rows.bind(1, now);
  return all_rows<FileRecord>(rows, file_of);
}

Status SqliteStore::remove_file(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(
      Query user, database_->prepare("SELECT id FROM batches WHERE input_file = ? AND " + kIsOpen + " LIMIT 1"));
  MOESTRO_ASSIGN_OR_RETURN(const bool used, user.bind(1, id).step());
  if (used) return conflict("the file is the input of " + user.text(0) + ", which is not over; cancel that first");
  return freeing([&]() -> Status {
    MOESTRO_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*database_));
    for (const char* sql : {"INSERT OR IGNORE INTO removed(id, number) SELECT id, number FROM files WHERE id = ?1",
                            "DELETE FROM files WHERE id = ?1"}) {
      MOESTRO_ASSIGN_OR_RETURN(Query query, database_->prepare(sql));
      MOESTRO_RETURN_IF_ERROR(query.bind(1, id).run());
    }
    MOESTRO_ASSIGN_OR_RETURN(
        Query forget, database_->prepare("DELETE FROM removed WHERE place <= (SELECT max(place) FROM removed) - ?"));
    MOESTRO_RETURN_IF_ERROR(forget.bind(1, int64_t{kRemovedMax}).run());
    return transaction.commit();
  });
}

namespace {

/// What may change of a batch, from position 1.
int bind_state(Query& query, const BatchRecord& b) {
  int at = 1;
  for (const BatchStatus status : {b.status, b.outcome}) query.bind(at++, static_cast<int64_t>(status));
  for (const std::string* text : {&b.output_file, &b.error_file, &b.error_code, &b.error_message})
    query.bind(at++, std::string_view(*text));
  for (const int64_t when :
       {b.in_progress_at, b.finalizing_at, b.completed_at, b.failed_at, b.expired_at, b.cancelling_at, b.cancelled_at})
    query.bind(at++, when);
  query.bind(at++, b.total);
  return at;
}

}  // namespace

Status SqliteStore::add_batch(const BatchRecord& b) {
  MOESTRO_RETURN_IF_ERROR(has_room());
  MOESTRO_ASSIGN_OR_RETURN(
      Query query, database_->prepare("INSERT OR IGNORE INTO batches(status, outcome, output_file, error_file, "
                                      "error_code, error_message, in_progress_at, "
                                      "finalizing_at, completed_at, failed_at, expired_at, cancelling_at, "
                                      "cancelled_at, total, id, endpoint, model, input_file, "
                                      "completion_window, metadata, owner, created_at, expires_at, output_seconds) "
                                      "VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  int at = bind_state(query, b);
  for (const std::string* text :
       {&b.id, &b.endpoint, &b.model, &b.input_file, &b.completion_window, &b.metadata, &b.owner})
    query.bind(at++, std::string_view(*text));
  for (const int64_t when : {b.created_at, b.expires_at, b.output_seconds}) query.bind(at++, when);
  MOESTRO_RETURN_IF_ERROR(query.run());
  counts_[static_cast<size_t>(b.status)] += static_cast<uint64_t>(database_->changes());
  return Status::ok();
}

Status SqliteStore::update_batch(const BatchRecord& b, BatchStatus from) {
  MOESTRO_ASSIGN_OR_RETURN(Query query,
                           database_->prepare("UPDATE batches SET status = ?, outcome = ?, output_file = ?, error_file "
                                              "= ?, error_code = ?, error_message = ?, "
                                              "in_progress_at = ?, finalizing_at = ?, completed_at = ?, failed_at = ?, "
                                              "expired_at = ?, cancelling_at = ?, cancelled_at = ?, "
                                              "total = ? WHERE id = ? AND status = ?"));
  const int at = bind_state(query, b);
  MOESTRO_RETURN_IF_ERROR(query.bind(at, std::string_view(b.id)).bind(at + 1, static_cast<int64_t>(from)).run());
  if (database_->changes() > 0) return Status::ok();
  return conflict("batch " + b.id + " is not " + std::string(batch_status_name(from)) + " any more");
}

void SqliteStore::moved(BatchStatus from, BatchStatus to) {
  --counts_[static_cast<size_t>(from)];
  ++counts_[static_cast<size_t>(to)];
}

Status SqliteStore::change_batch(const BatchRecord& batch, BatchStatus from) {
  const bool ends = batch.status == BatchStatus::kCancelling || batch.status == BatchStatus::kFinalizing;
  if (!ends) MOESTRO_RETURN_IF_ERROR(has_room());
  const auto update = [&] { return update_batch(batch, from); };
  MOESTRO_RETURN_IF_ERROR(ends ? freeing(update) : update());
  moved(from, batch.status);
  return Status::ok();
}

Result<std::optional<BatchRecord>> SqliteStore::batch(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(
      Query query, database_->prepare(std::string("SELECT ") + kBatchColumns + " FROM batches WHERE id = ?"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.bind(1, id).step());
  return row ? std::optional(batch_of(query)) : std::nullopt;
}

Result<std::vector<BatchRecord>> SqliteStore::batches(const ListQuery& query) {
  MOESTRO_ASSIGN_OR_RETURN(Query rows, page_of(*database_, "batches", kBatchColumns, query));
  return all_rows<BatchRecord>(rows, batch_of);
}

Result<std::vector<BatchRecord>> SqliteStore::unfinished() {
  MOESTRO_ASSIGN_OR_RETURN(Query rows, database_->prepare(std::string("SELECT ") + kBatchColumns +
                                                          " FROM batches WHERE " + kIsOpen + " ORDER BY number"));
  return all_rows<BatchRecord>(rows, batch_of);
}

Status SqliteStore::read_counts() {
  MOESTRO_ASSIGN_OR_RETURN(Query rows, database_->prepare("SELECT status, count(*) FROM batches GROUP BY status"));
  for (;;) {
    MOESTRO_ASSIGN_OR_RETURN(const bool more, rows.step());
    if (!more) return Status::ok();
    counts_[rows.count(0) & 7] = rows.count(1);
  }
}

Result<int64_t> SqliteStore::number_of(const std::string& batch) {
  MOESTRO_ASSIGN_OR_RETURN(Query query, database_->prepare("SELECT number FROM batches WHERE id = ?"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.bind(1, batch).step());
  if (!row) return not_found("there is no batch " + batch);
  return query.integer(0);
}

Result<bool> SqliteStore::takes_results(int64_t number) {
  MOESTRO_ASSIGN_OR_RETURN(
      Query query,
      database_->prepare("SELECT output_file = '' AND " + kIsOpen + " FROM batches WHERE number = ?"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.bind(1, number).step());
  return row && query.integer(0) != 0;
}

Result<LineCounts> SqliteStore::put_results(const std::string& batch, std::span<const LineResult> results) {
  MOESTRO_ASSIGN_OR_RETURN(const int64_t number, number_of(batch));
  MOESTRO_ASSIGN_OR_RETURN(const bool open, takes_results(number));
  LineCounts kept;
  if (!open) return kept;
  MOESTRO_RETURN_IF_ERROR(has_room());
  MOESTRO_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*database_));
  {
    MOESTRO_ASSIGN_OR_RETURN(Query insert,
                             database_->prepare("INSERT OR IGNORE INTO results VALUES(?, ?, ?, ?, ?, ?)"));
    uint64_t prompt = 0, cached = 0, completion = 0;
    for (const LineResult& r : results) {
      insert.reset();
      insert.bind(1, (number << kLineBits) + static_cast<int64_t>(r.line))
          .bind(2, int64_t{r.good})
          .bind(3, r.prompt_tokens);
      insert.bind(4, r.cached_tokens).bind(5, r.completion_tokens).bind(6, std::string_view(r.text));
      MOESTRO_RETURN_IF_ERROR(insert.run());
      if (database_->changes() == 0) continue;
      (r.good ? kept.good : kept.bad) += 1;
      prompt += r.prompt_tokens, cached += r.cached_tokens, completion += r.completion_tokens;
    }
    MOESTRO_ASSIGN_OR_RETURN(
        Query count,
        database_->prepare(
            "UPDATE batches SET completed = completed + ?, failed = failed + ?, prompt_tokens = prompt_tokens + ?, "
            "cached_tokens = cached_tokens + ?, completion_tokens = completion_tokens + ? WHERE number = ?"));
    count.bind(1, kept.good).bind(2, kept.bad).bind(3, prompt).bind(4, cached).bind(5, completion).bind(6, number);
    MOESTRO_RETURN_IF_ERROR(count.run());
  }
  MOESTRO_RETURN_IF_ERROR(transaction.commit());
  return kept;
}

Result<std::vector<uint64_t>> SqliteStore::lines_done(const std::string& batch) {
  MOESTRO_ASSIGN_OR_RETURN(const int64_t number, number_of(batch));
  MOESTRO_ASSIGN_OR_RETURN(Query rows,
                           database_->prepare("SELECT row FROM results WHERE row BETWEEN ? AND ? ORDER BY row"));
  rows.bind(1, number << kLineBits).bind(2, ((number + 1) << kLineBits) - 1);
  return all_rows<uint64_t>(rows, [](const Query& row) { return row.count(0) & 0xFFFFFFFFu; });
}

Result<std::vector<LineResult>> SqliteStore::results(const std::string& batch, uint64_t after, int64_t limit) {
  MOESTRO_ASSIGN_OR_RETURN(const int64_t number, number_of(batch));
  MOESTRO_ASSIGN_OR_RETURN(
      Query rows,
      database_->prepare("SELECT row, good, text, prompt_tokens, cached_tokens, completion_tokens FROM results "
                         "WHERE row > ? AND row < ? ORDER BY row LIMIT ?"));
  rows.bind(1, (number << kLineBits) + static_cast<int64_t>(after)).bind(2, (number + 1) << kLineBits).bind(3, limit);
  return all_rows<LineResult>(rows, [](const Query& row) {
    return LineResult{
        row.count(0) & 0xFFFFFFFFu, row.integer(1) != 0, row.text(2), row.count(3), row.count(4), row.count(5)};
  });
}

Status SqliteStore::put_blob(const std::string& name, std::span<const std::byte> bytes) {
  MOESTRO_RETURN_IF_ERROR(has_room());
  MOESTRO_ASSIGN_OR_RETURN(
      Query query,
      database_->prepare(
          "INSERT INTO blobs(name, bytes) VALUES(?, ?) ON CONFLICT(name) DO UPDATE SET bytes=excluded.bytes"));
  return query.bind(1, std::string_view(name)).bind(2, bytes).run();
}

Result<std::optional<std::vector<std::byte>>> SqliteStore::blob(const std::string& name) {
  MOESTRO_ASSIGN_OR_RETURN(Query query, database_->prepare("SELECT bytes FROM blobs WHERE name = ?"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.bind(1, std::string_view(name)).step());
  return row ? std::optional(query.bytes(0)) : std::nullopt;
}

Status SqliteStore::finish(const BatchRecord& batch, BatchStatus from, std::span<const FileRecord> files) {
  MOESTRO_ASSIGN_OR_RETURN(const int64_t number, number_of(batch.id));
  const Status done = freeing([&]() -> Status {
    MOESTRO_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*database_));
    for (const FileRecord& file : files) MOESTRO_RETURN_IF_ERROR(insert_file(file));
    MOESTRO_RETURN_IF_ERROR(update_batch(batch, from));
    return transaction.commit();
  });
  MOESTRO_RETURN_IF_ERROR(done);
  ended_.push_back(number);
  moved(from, batch.status);
  return Status::ok();
}

}  // namespace moestro::orchestrator

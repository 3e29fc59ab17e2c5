// The responses of SqliteStore.

#include "orchestrator/state/sqlite_store.h"

namespace moestro::orchestrator {

namespace {

/// The oldest response, and whether it was made after `time`.
Result<std::optional<std::pair<int64_t, uint64_t>>> oldest_response(const Database& database, bool& is_new,
                                                                    int64_t time) {
  MOESTRO_ASSIGN_OR_RETURN(
      Query query, database.prepare("SELECT number, bytes, created_at FROM responses ORDER BY number LIMIT 1"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.step());
  if (!row) return std::optional<std::pair<int64_t, uint64_t>>();
  is_new = query.integer(2) > time;
  return std::optional(std::pair(query.integer(0), query.count(1)));
}

}  // namespace

/// Of `bytes` that are kept, what is left when the oldest are gone.
Result<uint64_t> SqliteStore::forget_responses(const ResponseLimits& limits, uint64_t bytes) {
  MOESTRO_ASSIGN_OR_RETURN(Query forget, database_->prepare("DELETE FROM responses WHERE number = ?"));
  for (;;) {
    bool is_new = false;
    MOESTRO_ASSIGN_OR_RETURN(const auto oldest, oldest_response(*database_, is_new, limits.created_after));
    if (!oldest || (is_new && bytes <= limits.bytes_max)) return bytes;
    forget.reset();
    MOESTRO_RETURN_IF_ERROR(forget.bind(1, oldest->first).run());
    bytes -= oldest->second;
  }
}

Status SqliteStore::put_response(const ResponseRecord& r, const ResponseLimits& limits) {
  MOESTRO_RETURN_IF_ERROR(check_size(r, limits));
  MOESTRO_RETURN_IF_ERROR(has_room());
  MOESTRO_ASSIGN_OR_RETURN(Transaction transaction, Transaction::begin(*database_));
  uint64_t bytes = response_bytes_;
  {
    MOESTRO_ASSIGN_OR_RETURN(
        Query insert, database_->prepare(
                          "INSERT OR IGNORE INTO responses(id, owner, created_at, bytes, text) VALUES(?, ?, ?, ?, ?)"));
    insert.bind(1, std::string_view(r.id)).bind(2, std::string_view(r.owner)).bind(3, r.created_at);
    MOESTRO_RETURN_IF_ERROR(insert.bind(4, uint64_t{r.text.size()}).bind(5, std::string_view(r.text)).run());
    if (database_->changes() > 0) bytes += r.text.size();
    MOESTRO_ASSIGN_OR_RETURN(bytes, forget_responses(limits, bytes));
  }
  MOESTRO_RETURN_IF_ERROR(transaction.commit());
  response_bytes_ = bytes;
  return Status::ok();
}

Result<std::optional<ResponseRecord>> SqliteStore::response(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(Query query,
                           database_->prepare("SELECT owner, created_at, text FROM responses WHERE id = ?"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, query.bind(1, std::string_view(id)).step());
  if (!row) return std::optional<ResponseRecord>();
  return std::optional(ResponseRecord{id, query.text(0), query.integer(1), query.text(2)});
}

Status SqliteStore::remove_response(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(Query size, database_->prepare("SELECT bytes FROM responses WHERE id = ?"));
  MOESTRO_ASSIGN_OR_RETURN(const bool row, size.bind(1, std::string_view(id)).step());
  if (!row) return Status::ok();
  const uint64_t bytes = size.count(0);
  size.reset();
  const Status done = freeing([&]() -> Status {
    MOESTRO_ASSIGN_OR_RETURN(Query query, database_->prepare("DELETE FROM responses WHERE id = ?"));
    return query.bind(1, std::string_view(id)).run();
  });
  MOESTRO_RETURN_IF_ERROR(done);
  response_bytes_ -= bytes;
  return Status::ok();
}

Status SqliteStore::read_response_bytes() {
  MOESTRO_ASSIGN_OR_RETURN(const int64_t bytes, database_->integer("SELECT coalesce(sum(bytes), 0) FROM responses"));
  response_bytes_ = static_cast<uint64_t>(bytes);
  return Status::ok();
}

}  // namespace moestro::orchestrator

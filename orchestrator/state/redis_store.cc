#include "orchestrator/state/redis_store.h"

#include <charconv>

#include "orchestrator/state/redis_records.h"

namespace moestro::orchestrator {
namespace {

using Words = RedisLink::Words;

const std::string kSwept = "100";  ///< files at once

std::string number(BatchStatus status) { return std::to_string(static_cast<int>(status)); }

void add_file(std::vector<std::string>& words, const FileRecord& file) {
  for (const std::string& word : {file.id, file.purpose, std::to_string(file.bytes), std::to_string(file.expires_at)})
    words.push_back(word);
}

std::vector<std::string> ids_of(const RedisValue& list) {
  std::vector<std::string> ids;
  for (size_t i = 0; i < list.size(); ++i) ids.emplace_back(list[i].text());
  return ids;
}

}  // namespace

RedisStore::RedisStore(RedisOptions options) : options_(std::move(options)), link_(options_.place, options_.limits) {}

Result<RedisReply> RedisStore::run(const redis::Script& script, std::span<const std::string> arguments) {
  std::string text;
  for (const std::string_view part : script) text += part;
  Words words{"EVAL", text, "0"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return link_.call(words);
}

Status RedisStore::put_file(const FileRecord& file) {
  std::vector<std::string> words;
  add_file(words, file);
  words.push_back(options_.host);
  add_fields(words, file);
  return run(redis::kPutFile, words).status();
}

Result<std::vector<FileRecord>> RedisStore::files_of(std::span<const std::string> ids) {
  std::vector<std::string> keys;
  for (const std::string& id : ids) keys.push_back("moestro:file:" + id);
  std::vector<Words> asks;
  for (const std::string& key : keys) asks.push_back({"HGETALL", key});
  MOESTRO_ASSIGN_OR_RETURN(const auto replies, link_.calls(asks));
  std::vector<FileRecord> files;
  for (const RedisReply& reply : replies)
    if (reply->size() > 0) files.push_back(orchestrator::file_of(reply.value()));  // not one that was removed just now
  return files;
}

Result<std::optional<FileRecord>> RedisStore::file(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(auto files, files_of(std::span(&id, 1)));
  return files.empty() ? std::nullopt : std::optional(std::move(files.front()));
}

/// A page of `all`, a sorted set, or of its part that was asked for; by the numbers of its ids.
Result<std::vector<std::string>> RedisStore::page(const std::string& all, const ListQuery& query) {
  std::string set = all;
  if (!query.purpose.empty()) set += ":" + query.purpose;
  if (query.owner) set += ":of:" + *query.owner;
  std::string from = query.ascending ? "-inf" : "+inf";
  if (!query.after.empty()) {
    // A page may begin behind one of another purpose.
    MOESTRO_ASSIGN_OR_RETURN(const RedisReply at, link_.call({"ZSCORE", all, query.after}));
    from = "(" + std::string(at->text());
    if (at->is_nil()) {
      // Batches are not removed: they have no such key.
      const std::string removed = all == "moestro:files" ? "moestro:removed" : all + ":removed";
      MOESTRO_ASSIGN_OR_RETURN(const RedisReply was, link_.call({"HGET", removed, query.after}));
      if (was->is_nil()) return not_found("there is no '" + query.after.substr(0, 80) + "' to begin after");
      from = "(" + std::string(was->text());
    }
  }
  const std::string limit = std::to_string(query.limit);
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply ids,
                           link_.call({query.ascending ? "ZRANGEBYSCORE" : "ZREVRANGEBYSCORE", set, from,
                                       query.ascending ? "+inf" : "-inf", "LIMIT", "0", limit}));
  return ids_of(ids.value());
}

Result<std::vector<FileRecord>> RedisStore::files(const ListQuery& query) {
  MOESTRO_ASSIGN_OR_RETURN(const auto ids, page("moestro:files", query));
  return files_of(ids);
}

Result<std::vector<FileRecord>> RedisStore::expired_files(int64_t now) {
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply ids, run(redis::kExpiredFiles, std::vector{std::to_string(now), kSwept}));
  return files_of(ids_of(ids.value()));
}

Status RedisStore::remove_file(const std::string& id) {
  return run(redis::kRemoveFile, std::vector{id, std::to_string(kRemovedMax)}).status();
}

Status RedisStore::add_batch(const BatchRecord& batch) {
  std::vector<std::string> words{batch.id};
  add_fields(words, batch);
  return run(redis::kAddBatch, words).status();
}

Status RedisStore::change_batch(const BatchRecord& batch, BatchStatus from) {
  std::vector<std::string> words{batch.id, number(from), number(batch.status), options_.host};
  add_fields(words, batch);
  return run(redis::kChangeBatch, words).status();
}

Result<std::vector<BatchRecord>> RedisStore::batches_of(std::span<const std::string> ids) {
  std::vector<std::string> keys;
  for (const std::string& id : ids) keys.push_back("moestro:batch:" + id);
  std::vector<Words> asks;
  for (const std::string& key : keys) asks.push_back({"HGETALL", key});
  MOESTRO_ASSIGN_OR_RETURN(const auto replies, link_.calls(asks));
  std::vector<BatchRecord> batches;
  for (const RedisReply& reply : replies)
    if (reply->size() > 0) batches.push_back(orchestrator::batch_of(reply.value()));
  return batches;
}

Result<std::optional<BatchRecord>> RedisStore::batch(const std::string& id) {
  MOESTRO_ASSIGN_OR_RETURN(auto batches, batches_of(std::span(&id, 1)));
  return batches.empty() ? std::nullopt : std::optional(std::move(batches.front()));
}

Result<std::vector<BatchRecord>> RedisStore::batches(const ListQuery& query) {
  MOESTRO_ASSIGN_OR_RETURN(const auto ids, page("moestro:batches", query));
  return batches_of(ids);
}

Result<std::vector<BatchRecord>> RedisStore::unfinished() {
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply ids, link_.call({"ZRANGE", "moestro:open", "0", "-1"}));
  return batches_of(ids_of(ids.value()));
}

Result<std::vector<uint64_t>> RedisStore::count_batches() {
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply counts,
                           link_.call({"HMGET", "moestro:counts", "0", "1", "2", "3", "4", "5", "6", "7"}));
  std::vector<uint64_t> all(kBatchStatuses);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string_view text = counts[i].text();
    std::from_chars(text.data(), text.data() + text.size(), all[i]);
  }
  return all;
}

Status RedisStore::put_response(const ResponseRecord& r, const ResponseLimits& limits) {
  MOESTRO_RETURN_IF_ERROR(check_size(r, limits));
  const std::vector<std::string> words{
      r.id, r.owner, std::to_string(r.created_at), r.text, std::to_string(limits.created_after),
      std::to_string(limits.bytes_max)};
  return run(redis::kPutResponse, words).status();
}

Result<std::optional<ResponseRecord>> RedisStore::response(const std::string& id) {
  const std::string key = "moestro:response:" + id;
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply kept, link_.call({"HMGET", key, "owner", "created_at", "text"}));
  if (kept[2].is_nil()) return std::optional<ResponseRecord>();
  ResponseRecord record{id, std::string(kept[0].text()), 0, std::string(kept[2].text())};
  const std::string_view at = kept[1].text();
  std::from_chars(at.data(), at.data() + at.size(), record.created_at);
  return std::optional(std::move(record));
}

Status RedisStore::remove_response(const std::string& id) {
  return run(redis::kRemoveResponse, std::span(&id, 1)).status();
}

Status RedisStore::put_blob(const std::string& name, std::span<const std::byte> bytes) {
  const std::string key = "moestro:kept:" + name;
  return link_.call({"SET", key, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())}).status();
}

Result<std::optional<std::vector<std::byte>>> RedisStore::blob(const std::string& name) {
  const std::string key = "moestro:kept:" + name;
  MOESTRO_ASSIGN_OR_RETURN(const RedisReply kept, link_.call({"GET", key}));
  if (kept->is_nil()) return std::optional<std::vector<std::byte>>();
  const auto bytes = std::as_bytes(std::span(kept->text()));
  return std::optional(std::vector<std::byte>(bytes.begin(), bytes.end()));
}

Status RedisStore::has_room_for_files(const std::string& batch) {
  return run(redis::kRoomForFiles, std::span(&batch, 1)).status();
}

Status RedisStore::finish(const BatchRecord& batch, BatchStatus from, std::span<const FileRecord> files) {
  std::vector<std::string> words{batch.id, number(from), number(batch.status), options_.host};
  add_fields(words, batch);
  for (const FileRecord& file : files) {
    add_file(words, file);
    add_fields(words, file);
  }
  return run(redis::kFinish, words).status();
}

}  // namespace moestro::orchestrator

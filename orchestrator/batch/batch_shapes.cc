#include "orchestrator/batch/batch_shapes.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "common/percent_decode.h"
#include "orchestrator/api/field_reader.h"
#include "orchestrator/state/conflict.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;

constexpr std::string_view kEndpoints[] = {"/v1/completions", "/v1/chat/completions", "/v1/embeddings"};
constexpr size_t kMetadataPairsMax = 16, kMetadataKeyMax = 64, kMetadataValueMax = 512;
constexpr int64_t kWindowSecondsMax = 30 * 24 * 3600;
constexpr int64_t kFilesLimitMax = 10'000, kBatchesLimitMax = 100, kBatchesLimit = 20;

json time_or_null(int64_t at) { return at > 0 ? json(at) : json(); }
json text_or_null(const std::string& text) { return text.empty() ? json() : json(text); }

/// "24h": a number and s, m, h or d. 0: it is something else.
int64_t window_of(const std::string& text) {
  int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end + 1 != text.data() + text.size() || n < 1 || n > kWindowSecondsMax) return 0;
  const int64_t unit = *end == 's' ? 1 : *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;
  return n * unit <= kWindowSecondsMax ? n * unit : 0;
}

void read_metadata(FieldReader& f, BatchRecord& record) {
  const RequestJson* metadata = f.field("metadata");
  if (metadata == nullptr) return;
  if (!metadata->is_object()) return f.fail(bad_request("'metadata' must be an object of texts", "metadata"));
  if (metadata->size() > kMetadataPairsMax)
    return f.fail(bad_request("'metadata' may have " + std::to_string(kMetadataPairsMax) + " members", "metadata"));
  for (const auto& [key, value] : metadata->items())
    if (key.size() > kMetadataKeyMax || !value.is_string() ||
        value.get_ref<const std::string&>().size() > kMetadataValueMax)
      return f.fail(bad_request("'metadata' must have names of at most " + std::to_string(kMetadataKeyMax) +
                                    " bytes and texts of at most " + std::to_string(kMetadataValueMax),
                                "metadata"));
  record.metadata = metadata->dump();
}

void read_output_expiry(FieldReader& f, BatchRecord& record) {
  const RequestJson* after = f.field("output_expires_after");
  if (after == nullptr) return;
  if (!after->is_object())
    return f.fail(bad_request("'output_expires_after' must be an object", "output_expires_after"));
  FieldReader inner(*after);
  const auto anchor = inner.string("anchor");
  const auto seconds = inner.integer("seconds", kFileSecondsLeast, kFileSecondsMost);
  inner.refuse_unknown();
  if (inner.error()) return f.fail(*inner.error());
  if (anchor != "created_at" || !seconds)
    return f.fail(
        bad_request("'output_expires_after' must have 'anchor': 'created_at' and 'seconds'", "output_expires_after"));
  record.output_seconds = *seconds;
}

}  // namespace

ApiError error_of_state(const Status& status) {
  ApiError e = from_status(status);
  if (status.code() == Code::kExhausted) {
    e.http_status = 507;
    e.type = "insufficient_storage_error";
  } else if (status.code() == kConflict) {
    e = bad_request(status.message(), "id");
    e.http_status = 409;
  }
  return e;
}

json file_json(const FileRecord& file) {
  json value{
      {"id", file.id},         {"object", "file"},        {"bytes", file.bytes},   {"created_at", file.created_at},
      {"filename", file.name}, {"purpose", file.purpose}, {"status", "processed"}, {"status_details", nullptr}};
  value["expires_at"] = time_or_null(file.expires_at);
  return value;
}

json batch_json(const BatchRecord& b) {
  json value{{"id", b.id},
             {"object", "batch"},
             {"endpoint", b.endpoint},
             {"model", b.model},
             {"errors", nullptr},
             {"input_file_id", b.input_file},
             {"completion_window", b.completion_window},
             {"status", batch_status_name(b.status)},
             {"created_at", b.created_at},
             {"request_counts", {{"total", b.total}, {"completed", b.completed}, {"failed", b.failed}}},
             {"usage",
              {{"input_tokens", b.prompt_tokens},
               {"input_tokens_details", {{"cached_tokens", b.cached_tokens}}},
               {"output_tokens", b.completion_tokens},
               {"output_tokens_details", {{"reasoning_tokens", 0}}},
               {"total_tokens", b.prompt_tokens + b.completion_tokens}}},
             {"metadata", b.metadata.empty() ? json() : json::parse(b.metadata, nullptr, false)}};
  if (!b.error_code.empty())
    value["errors"] = {
        {"object", "list"},
        {"data",
         json::array({{{"code", b.error_code}, {"message", b.error_message}, {"param", nullptr}, {"line", nullptr}}})}};
  // Ids are known before their files are there.
  value["output_file_id"] = is_over(b.status) ? text_or_null(b.output_file) : json();
  value["error_file_id"] = is_over(b.status) ? text_or_null(b.error_file) : json();
  value["in_progress_at"] = time_or_null(b.in_progress_at);
  value["expires_at"] = time_or_null(b.expires_at);
  value["finalizing_at"] = time_or_null(b.finalizing_at);
  value["completed_at"] = time_or_null(b.completed_at);
  value["failed_at"] = time_or_null(b.failed_at);
  value["expired_at"] = time_or_null(b.expired_at);
  value["cancelling_at"] = time_or_null(b.cancelling_at);
  value["cancelled_at"] = time_or_null(b.cancelled_at);
  return value;
}

json list_json(std::vector<json> items, bool has_more) {
  json list{
      {"object", "list"}, {"data", json::array()}, {"first_id", nullptr}, {"last_id", nullptr}, {"has_more", has_more}};
  if (!items.empty()) {
    list["first_id"] = items.front()["id"];
    list["last_id"] = items.back()["id"];
  }
  list["data"] = std::move(items);
  return list;
}

std::variant<BatchOrder, ApiError> read_batch_order(const std::string& body) {
  const auto parsed = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return *error;
  FieldReader f(std::get<RequestJson>(parsed));
  BatchOrder order;
  const auto file = f.string("input_file_id"), endpoint = f.string("endpoint"), window = f.string("completion_window");
  read_metadata(f, order.record);
  read_output_expiry(f, order.record);
  f.refuse_unknown();
  if (!file) f.fail(bad_request("'input_file_id' is missing: the id of an uploaded file", "input_file_id"));
  if (!endpoint || std::ranges::find(kEndpoints, *endpoint) == std::end(kEndpoints))
    f.fail(bad_request("'endpoint' must be '/v1/completions', '/v1/chat/completions' or '/v1/embeddings'", "endpoint"));
  order.window_seconds = window_of(window.value_or(""));
  if (order.window_seconds == 0)
    f.fail(bad_request("'completion_window' must be a time as '24h', '90m' or '7d', 30 days at most",
                       "completion_window"));
  if (f.error()) return *f.error();
  order.record.input_file = *file;
  order.record.endpoint = *endpoint;
  order.record.completion_window = *window;
  return order;
}

std::variant<bool, ApiError> read_cancel_order(const std::string& body) {
  if (body.empty()) return false;
  const auto parsed = parse_body(body);
  if (const auto* error = std::get_if<ApiError>(&parsed)) return *error;
  FieldReader f(std::get<RequestJson>(parsed));
  const auto drop_results = f.boolean("drop_results");
  f.refuse_unknown();
  if (f.error()) return *f.error();
  return drop_results.value_or(false);
}

std::variant<ListQuery, ApiError> read_list_query(const std::string& query, bool of_files) {
  ListQuery list;
  list.limit = of_files ? kFilesLimitMax : kBatchesLimit;
  const int64_t most = of_files ? kFilesLimitMax : kBatchesLimitMax;
  for (size_t at = 0; at < query.size();) {
    const size_t end = std::min(query.find('&', at), query.size());
    const std::string_view pair = std::string_view(query).substr(at, end - at);
    at = end + 1;
    if (pair.empty()) continue;
    const size_t equals = std::min(pair.find('='), pair.size());
    const std::string name(pair.substr(0, equals));
    const auto value = percent_decoded(equals < pair.size() ? pair.substr(equals + 1) : "", true);
    if (!value) return bad_request("'" + name + "' in the query has a wrong escape", name);
    if (name == "after") {
      list.after = *value;
    } else if (name == "limit") {
      const auto [last, error] = std::from_chars(value->data(), value->data() + value->size(), list.limit);
      if (error != std::errc{} || last != value->data() + value->size() || list.limit < 1 || list.limit > most)
        return bad_request("'limit' must be a number of 1 to " + std::to_string(most), "limit");
    } else if (of_files && name == "order") {
      if (*value != "asc" && *value != "desc") return bad_request("'order' must be 'asc' or 'desc'", "order");
      list.ascending = *value == "asc";
    } else if (of_files && name == "purpose") {
      list.purpose = *value;
    } else {
      return not_supported(name.substr(0, 60), "not known in this query; leave it out");
    }
  }
  return list;
}

}  // namespace moestro::orchestrator

#include "orchestrator/batch/batch_api.h"

#include <nlohmann/json.hpp>

#include "common/log_format.h"
#include "orchestrator/api/answer_headers.h"
#include "orchestrator/api/json_text.h"
#include "orchestrator/api/metric_text.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;
using Answer = std::variant<json, ApiError>;

constexpr const char* kJson = "application/json";
constexpr std::string_view kFiles = "/v1/files", kBatches = "/v1/batches";
constexpr size_t kDiskQueueMax = 256;
constexpr int kUploadsMax = 32;
/// Of an order, with all the metadata that it may have: it is read on the server's thread.
constexpr size_t kOrderBytesMax = 64 << 10;

ApiError list_error(const Status& status) {
  return status.code() == Code::kNotFound ? bad_request(status.message(), "after") : error_of_state(status);
}

/// The record, if it is of the project.
template <typename Record>
Result<std::optional<Record>> within(const std::optional<std::string>& scope, Result<std::optional<Record>> record) {
  if (record.is_ok() && *record && scope && (*record)->owner != *scope) return std::optional<Record>();
  return record;
}

/// A file's bytes, read on the disk's thread.
class FileSource final : public BodySource {
 public:
  FileSource(std::unique_ptr<FileBytes> file, uint64_t bytes, Background& disk, BatchRunner::Post post)
      : file_(std::move(file)), bytes_(bytes), disk_(disk), post_(std::move(post)) {}
  uint64_t bytes() const override { return bytes_; }
  void next(std::function<void(std::string)> ready) override {
    const uint64_t at = std::exchange(at_, std::min(bytes_, at_ + kPiece));
    const bool queued = disk_.run([file = file_, at, size = at_ - at, ready, post = post_] {
      auto piece = file->read(at, size);
      const bool whole = piece.is_ok() && piece->size() == size;
      post([ready, p = whole ? std::move(*piece) : std::string()]() mutable { ready(std::move(p)); });
    });
    if (!queued) ready("");
  }

 private:
  static constexpr uint64_t kPiece = 256 << 10;
  const std::shared_ptr<FileBytes> file_;
  const uint64_t bytes_;
  Background& disk_;
  const BatchRunner::Post post_;
  uint64_t at_ = 0;
};

}  // namespace

BatchApi::BatchApi(BatchRunner& runner, std::string model, BatchRunner::Post post)
    : runner_(runner), model_(std::move(model)), post_(std::move(post)), disk_(kDiskQueueMax) {}

Result<std::optional<FileRecord>> BatchApi::file(const std::string& id, const Scope& scope) const {
  return within(scope, runner_.state().file(id));
}

Result<std::optional<BatchRecord>> BatchApi::batch(const std::string& id, const Scope& scope) const {
  return within(scope, runner_.state().batch(id));
}

void BatchApi::say(const ExchangePtr& exchange, const Answer& what) {
  if (const auto* error = std::get_if<ApiError>(&what)) return refuse(exchange, *error);
  exchange->respond(200, kJson, dump(std::get<json>(what)));
}

template <typename T>
void BatchApi::ask(const ExchangePtr& exchange, std::function<T()> question,
                   std::function<void(const ExchangePtr&, const T&)> say) {
  const Status asked = runner_.ask<T>(
      [id = exchange->request_id(), question = std::move(question)] {
        const log::Field field("request_id", id);
        return question();
      },
      [exchange, say = std::move(say)](const T& answer) { say(exchange, answer); });
  if (!asked.is_ok()) post_([exchange, asked] { refuse(exchange, from_status(asked)); });
}

void BatchApi::answer(const ExchangePtr& exchange, std::function<Answer()> question) {
  ask<Answer>(exchange, std::move(question), say);
}

std::vector<ServedRoute> BatchApi::routes() {
  return {{"GET", "/v1/files"},
          {"POST", "/v1/files"},
          {"GET", "/v1/files/{file}"},
          {"DELETE", "/v1/files/{file}"},
          {"GET", "/v1/files/{file}/content"},
          {"GET", "/v1/batches"},
          {"POST", "/v1/batches"},
          {"GET", "/v1/batches/{batch}"},
          {"POST", "/v1/batches/{batch}/cancel"}};
}

bool BatchApi::handle(HttpRequest& request, const ExchangePtr& exchange) {
  for (const std::string_view root : {kFiles, kBatches}) {
    if (!request.path.starts_with(root)) continue;
    const std::string rest = request.path.substr(root.size());
    if (!rest.empty() && rest.front() != '/') continue;
    if (root == kFiles) handle_files(request, exchange, rest);
    else handle_batches(request, exchange, rest);
    return true;
  }
  return false;
}

namespace {

/// "/ID" or "/ID/word"; the id is checked before anything is looked for.
struct Rest {
  std::string id, word;
};
Rest split(const std::string& rest) {
  const size_t slash = rest.find('/', 1);
  if (slash == std::string::npos) return {rest.substr(1), ""};
  return {rest.substr(1, slash - 1), rest.substr(slash + 1)};
}

void only_methods(const std::shared_ptr<Exchange>& exchange, const HttpRequest& request, const std::string& allowed) {
  refuse(exchange, wrong_method(request.path, request.method, allowed), {{"Allow", allowed}});
}

}  // namespace

void BatchApi::handle_files(HttpRequest& request, const ExchangePtr& exchange, const std::string& rest) {
  const std::string& method = request.method;
  const Scope scope = request.scope();
  if (rest.empty()) {
    if (method == "GET") return list_files(request, exchange);
    if (method == "POST") return upload(request, exchange);
    return only_methods(exchange, request, "GET, HEAD, POST");
  }
  const auto [id, word] = split(rest);
  if (!is_id(id, "file-") || (!word.empty() && word != "content"))
    return refuse(exchange, not_here("file", is_id(id, "file-") ? rest.substr(1) : id));
  if (word == "content") {
    if (method != "GET") return only_methods(exchange, request, "GET, HEAD");
    return content(exchange, id, scope);
  }
  if (method == "DELETE") return answer(exchange, [this, file_id = id, scope] { return remove_file(file_id, scope); });
  if (method != "GET") return only_methods(exchange, request, "GET, HEAD, DELETE");
  answer(exchange, [this, file_id = id, scope]() -> Answer {
    const auto known = file(file_id, scope);
    if (!known.is_ok()) return error_of_state(known.status());
    return *known ? Answer(file_json(**known)) : not_here("file", file_id);
  });
}

void BatchApi::handle_batches(HttpRequest& request, const ExchangePtr& exchange, const std::string& rest) {
  const std::string& method = request.method;
  const Scope scope = request.scope();
  if (rest.empty()) {
    if (method == "GET") return list_batches(request, exchange);
    if (method == "POST") return create_batch(request, exchange);
    return only_methods(exchange, request, "GET, HEAD, POST");
  }
  const auto [id, word] = split(rest);
  if (!is_id(id, "batch_") || (!word.empty() && word != "cancel"))
    return refuse(exchange, not_here("batch", is_id(id, "batch_") ? rest.substr(1) : id));
  if (word == "cancel") {
    if (method != "POST") return only_methods(exchange, request, "POST");
    const auto drop_results = read_cancel_order(request.body);
    if (const auto* error = std::get_if<ApiError>(&drop_results)) return refuse(exchange, *error);
    return answer(exchange, [this, batch_id = id, scope, drops = std::get<bool>(drop_results)]() -> Answer {
      const auto known = batch(batch_id, scope);
      if (!known.is_ok()) return error_of_state(known.status());
      if (!*known) return not_here("batch", batch_id);
      const auto cancelled = runner_.cancel(batch_id, drops);
      return cancelled.is_ok() ? Answer(batch_json(*cancelled)) : error_of_state(cancelled.status());
    });
  }
  if (method != "GET") return only_methods(exchange, request, "GET, HEAD");
  answer(exchange, [this, batch_id = id, scope]() -> Answer {
    const auto known = batch(batch_id, scope);
    if (!known.is_ok()) return error_of_state(known.status());
    return *known ? Answer(batch_json(**known)) : not_here("batch", batch_id);
  });
}

std::shared_ptr<BodySink> BatchApi::sink_for(const HttpRequest& head, const std::string& content_type) {
  if (head.method != "POST" || head.path != kFiles || !content_type.starts_with("multipart/form-data")) return nullptr;
  if (*uploads_ >= kUploadsMax)
    return nullptr;  // then the body has the usual limit, and the handler says why it is refused
  ++*uploads_;
  return std::make_shared<Upload>(content_type, runner_.files(), disk_, post_, [count = uploads_] { --*count; });
}

void BatchApi::upload(const HttpRequest& request, const ExchangePtr& exchange) {
  const auto sink = std::dynamic_pointer_cast<Upload>(request.sink);
  if (!sink && *uploads_ >= kUploadsMax)
    return refuse(exchange, from_status(exhausted("many files are being uploaded already; try again later")));
  if (!sink)
    return refuse(exchange,
                  bad_request("a file is uploaded as multipart/form-data with the fields 'file' and 'purpose'"));
  const bool queued = disk_.run([this, exchange, sink, project = request.project] {
    auto finished = sink->finish();
    if (finished.is_ok()) finished->owner = project;
    answer(exchange, [this, file = std::move(finished), seconds = sink->expires_seconds()]() mutable -> Answer {
      if (!file.is_ok()) return error_of_state(file.status());
      file->created_at = runner_.now();
      if (seconds > 0) file->expires_at = file->created_at + seconds;
      const Status kept = runner_.state().put_file(*file);
      if (kept.is_ok()) return file_json(*file);
      runner_.files().remove(file->id);
      return error_of_state(kept);
    });
  });
  if (!queued) refuse(exchange, from_status(exhausted("many files are being written already; try again later")));
}

void BatchApi::list_files(const HttpRequest& request, const ExchangePtr& exchange) {
  auto query = read_list_query(request.query, true);
  if (const auto* error = std::get_if<ApiError>(&query)) return refuse(exchange, *error);
  answer(exchange, [this, list = std::get<ListQuery>(query), scope = request.scope()]() mutable -> Answer {
    list.owner = scope;
    ++list.limit;  // one more tells whether there are more
    auto files = runner_.state().files(list);
    if (!files.is_ok()) return list_error(files.status());
    const bool more = static_cast<int64_t>(files->size()) == list.limit;
    if (more) files->pop_back();
    std::vector<json> items;
    for (const FileRecord& file : *files) items.push_back(file_json(file));
    return list_json(std::move(items), more);
  });
}

void BatchApi::content(const ExchangePtr& exchange, const std::string& id, const Scope& scope) {
  using Found = std::variant<std::shared_ptr<BodySource>, ApiError>;
  const auto open = [this, id, scope]() -> Found {
    const auto known = file(id, scope);
    if (!known.is_ok()) return error_of_state(known.status());
    if (!*known) return not_here("file", id);
    auto bytes = runner_.files().open(id);
    // The file is known: that its bytes are gone is no fault of whoever asks.
    if (bytes.status().code() == Code::kNotFound) return error_of_state(io_error(bytes.status().message()));
    if (!bytes.is_ok()) return error_of_state(bytes.status());
    return std::make_shared<FileSource>(std::move(*bytes), (*known)->bytes, disk_, post_);
  };
  ask<Found>(exchange, open, [](const ExchangePtr& to, const Found& found) {
    if (const auto* error = std::get_if<ApiError>(&found)) return refuse(to, *error);
    to->respond_from("application/octet-stream", std::get<std::shared_ptr<BodySource>>(found));
  });
}

Answer BatchApi::remove_file(const std::string& id, const Scope& scope) {
  const auto known = file(id, scope);
  if (!known.is_ok()) return error_of_state(known.status());
  if (!*known) return not_here("file", id);
  if (const Status removed = runner_.state().remove_file(id); !removed.is_ok()) return error_of_state(removed);
  runner_.files().remove(id);
  return json{{"id", id}, {"object", "file"}, {"deleted", true}};
}

void BatchApi::create_batch(const HttpRequest& request, const ExchangePtr& exchange) {
  if (request.body.size() > kOrderBytesMax)
    return refuse(exchange, bad_request("the order of a batch is longer than " + std::to_string(kOrderBytesMax) +
                                        " bytes; its lines go into a file"));
  auto order = read_batch_order(request.body);
  if (const auto* error = std::get_if<ApiError>(&order)) return refuse(exchange, *error);
  answer(exchange, [this, o = std::move(std::get<BatchOrder>(order)), scope = request.scope()]() mutable -> Answer {
    BatchRecord& record = o.record;
    const auto input = file(record.input_file, scope);
    if (!input.is_ok()) return error_of_state(input.status());
    if (!*input) return bad_request("there is no file '" + record.input_file.substr(0, 80) + "'", "input_file_id");
    if ((*input)->purpose != "batch")
      return bad_request("the file's purpose is '" + (*input)->purpose + "', not 'batch'", "input_file_id");
    record.owner = (*input)->owner;  // a batch keeps its input from being deleted: so the file's owner has to see it
    record.id = new_id("batch_");
    record.model = model_;
    record.created_at = runner_.now();
    record.expires_at = record.created_at + o.window_seconds;
    if (const Status place = runner_.has_place(); !place.is_ok()) return from_status(place);
    const auto added = runner_.add(std::move(record));
    return added.is_ok() ? Answer(batch_json(*added)) : error_of_state(added.status());
  });
}

void BatchApi::list_batches(const HttpRequest& request, const ExchangePtr& exchange) {
  auto query = read_list_query(request.query, false);
  if (const auto* error = std::get_if<ApiError>(&query)) return refuse(exchange, *error);
  answer(exchange, [this, list = std::get<ListQuery>(query), scope = request.scope()]() mutable -> Answer {
    list.owner = scope;
    ++list.limit;
    auto batches = runner_.state().batches(list);
    if (!batches.is_ok()) return list_error(batches.status());
    const bool more = static_cast<int64_t>(batches->size()) == list.limit;
    if (more) batches->pop_back();
    std::vector<json> items;
    for (const BatchRecord& batch : *batches) items.push_back(batch_json(batch));
    return list_json(std::move(items), more);
  });
}

std::string BatchApi::metrics() const {
  const BatchFigures f = runner_.figures();
  const auto labelled = [this](const char* name, std::string_view value) {
    return MetricText::Labels{{"model", model_}, {name, std::string(value)}};
  };
  const MetricText::Labels model{{"model", model_}};
  MetricText text;
  text.gauge("moestro_batches", "Batches that are known, by status.");
  for (size_t s = 0; s < f.batches.size(); ++s)
    text.sample(static_cast<double>(f.batches[s]), labelled("status", batch_status_name(static_cast<BatchStatus>(s))));
  text.counter("moestro_batch_lines_total", "Results of lines that this host has stored, by result.")
      .sample(static_cast<double>(f.lines_good), labelled("result", "ok"))
      .sample(static_cast<double>(f.lines_bad), labelled("result", "error"));
  text.gauge("moestro_batch_lines_in_flight", "Lines that have been given out and are not answered.")
      .sample(static_cast<double>(f.in_flight), model);
  text.counter("moestro_batch_retries_total", "Lines given out again because the server was full or had no worker.")
      .sample(static_cast<double>(f.retries), model);
  text.gauge("moestro_batches_stalled", "1 while the state, or the files of a batch, cannot be written.")
      .sample(f.stalled.empty() ? 0 : 1, model);
  text.gauge("moestro_batch_names_left", "Names of the model whose lines other hosts run with another version of it.")
      .sample(static_cast<double>(f.held.size()), model);
  return text.text();
}

json BatchApi::status(const HttpRequest& request) const {
  const BatchFigures f = runner_.figures();
  json batches = json::object();
  for (size_t s = 0; s < f.batches.size(); ++s)
    batches[std::string(batch_status_name(static_cast<BatchStatus>(s)))] = f.batches[s];
  json under_way = json::array();
  const Scope scope = request.scope();
  for (const auto& b : f.under_way) {
    if (scope && b.owner != *scope) continue;
    under_way.push_back({{"id", b.id},
                         {"status", batch_status_name(b.status)},
                         {"total", b.total},
                         {"completed", b.completed},
                         {"failed", b.failed},
                         {"waits_for_model", b.waits_for.empty() ? json() : json(b.waits_for)},
                         {"waits_for_version", b.waits_for_version.empty() ? json() : json(b.waits_for_version)}});
  }
  json left = json::array();
  for (const HeldName& one : f.held)
    left.push_back({{"model", one.name}, {"version", one.version}, {"hosts", one.hosts}});
  return {
      {"batches",
       {{"by_status", std::move(batches)},
        {"under_way", std::move(under_way)},
        {"version", f.version.empty() ? json() : json(f.version)},
        {"left_to_others", std::move(left)},
        {"lines",
         {{"completed", f.lines_good}, {"failed", f.lines_bad}, {"in_flight", f.in_flight}, {"retries", f.retries}}},
        {"stalled", f.stalled.empty() ? json() : json(f.stalled)}}}};
}

}  // namespace moestro::orchestrator

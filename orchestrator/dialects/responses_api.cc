#include "orchestrator/dialects/responses_api.h"

#include <algorithm>

#include "common/clock.h"
#include "common/log.h"
#include "common/log_format.h"
#include "orchestrator/api/answer_headers.h"
#include "orchestrator/api/json_text.h"
#include "orchestrator/batch/batch_shapes.h"
#include "orchestrator/dialects/dialect_text.h"
#include "orchestrator/dialects/responses_answer.h"
#include "orchestrator/dialects/responses_items.h"

namespace moestro::orchestrator {

namespace {

constexpr const char* kJsonBody = "application/json";
/// Of one response with its input: what is read back is in memory besides the bodies of requests.
constexpr size_t kRecordBytesMax = 4 << 20;
constexpr std::string_view kResponses = "/v1/responses", kIdPrefix = "resp_", kInputItems = "input_items";

void refuse_response(const std::shared_ptr<Exchange>& exchange, const ApiError& error, Headers headers = {}) {
  add_retry_after(headers, error);
  exchange->respond(error.http_status, kJsonBody, responses_error_body(error, exchange->request_id()), headers);
}

void only_methods(const std::shared_ptr<Exchange>& exchange, const HttpRequest& request, const std::string& allowed) {
  refuse_response(exchange, wrong_method(request.path, request.method, allowed), {{"Allow", allowed}});
}

/// {"response", "input"} of a record; an empty object if it is damaged.
RequestJson record_of(const std::string& text) {
  RequestJson record = RequestJson::parse(text, nullptr, /*allow_exceptions=*/false);
  const bool whole = record.is_object() && record.contains("response") && record["response"].is_object() &&
                     record["response"].contains("output") && record.contains("input");
  return whole ? record : RequestJson::object();
}

ApiError is_damaged(const std::string& id) {
  ApiError e;
  e.message = "the response '" + id + "' was kept and is damaged: it cannot be shown, nor continued; send its "
              "conversation as 'input', and delete it";
  return e;
}

/// All that the model was given and said: what a response that goes on from this one begins with. nullopt: it is
/// damaged.
std::optional<ResponseContext> context_of(const std::string& record_text) {
  const RequestJson record = record_of(record_text);
  if (record.empty()) return std::nullopt;
  ResponseContext context{record["input"], {}};
  add_said(context, record["response"]["output"]);
  return context;
}

}  // namespace

std::vector<ServedRoute> ResponsesApi::routes() {
  return {{"POST", "/v1/responses"},
          {"GET", "/v1/responses/{response}"},
          {"DELETE", "/v1/responses/{response}"},
          {"GET", "/v1/responses/{response}/input_items"}};
}

nlohmann::json ResponsesApi::status(const HttpRequest&) const { return nlohmann::json::object(); }

bool ResponsesApi::handle(HttpRequest& request, const ExchangePtr& exchange) {
  if (!request.path.starts_with(kResponses)) return false;
  const std::string rest = request.path.substr(kResponses.size());
  if (!rest.empty() && rest.front() != '/') return false;
  const std::string& method = request.method;
  if (rest.empty()) {
    method == "POST" ? create(request, exchange) : only_methods(exchange, request, "POST");
    return true;
  }
  const size_t slash = std::min(rest.find('/', 1), rest.size());
  const std::string id = rest.substr(1, slash - 1), word = rest.substr(std::min(slash + 1, rest.size()));
  if (!is_id(id, std::string(kIdPrefix)) || (!word.empty() && word != kInputItems)) {
    refuse_response(exchange, not_here("response", rest.substr(1), "response_id"));
  } else if (word == kInputItems) {
    if (method == "GET")
      list_input(request, id, exchange);
    else
      only_methods(exchange, request, "GET, HEAD");
  } else if (method == "GET") {
    const auto response = [](const RequestJson& record) {
      return text_of(record.value("response", RequestJson::object()));
    };
    if (request.query.empty())
      show(request, id, exchange, response);
    else
      refuse_response(exchange, not_supported("query", "nothing is known in this query; leave it out"));
  } else if (method == "DELETE") {
    remove(id, request.scope(), exchange);
  } else {
    only_methods(exchange, request, "GET, HEAD, DELETE");
  }
  return true;
}

void ResponsesApi::create(HttpRequest& request, const ExchangePtr& exchange) {
  const auto slot = std::make_shared<std::unique_ptr<AnswerTranslator>>();
  const ExchangePtr translated =
      std::make_shared<TranslatedExchange>(exchange, responses_error_body, slot, service_.pool(), request.owner);
  std::string body = std::exchange(request.body, {});
  HttpRequest head = request;  // what comes after reading needs of it
  request.body = std::move(body);
  const auto read = [this, lenient = options_.lenient, slot, head = std::move(head)](
                        const HttpRequest& http, const std::stop_token&) -> ReadingPool::Outcome {
    auto parsed = parse_body(http.body);
    std::variant<ResponsesRequest, ApiError> made = bad_request("");
    if (auto* error = std::get_if<ApiError>(&parsed))
      made = std::move(*error);
    else
      made = read_responses_request(std::get<RequestJson>(parsed), lenient);
    if (auto* error = std::get_if<ApiError>(&made))
      return [this, e = std::move(*error)](const ExchangePtr& to) { service_.refuse_completion(to, e); };
    const auto good = std::make_shared<ResponsesRequest>(std::move(std::get<ResponsesRequest>(made)));
    good->bytes = http.body.size();
    return [this, good, slot, head](const ExchangePtr& to) {
      good->previous.empty() ? go_on(head, good, "", to, slot) : recall(head, good, to, slot);
    };
  };
  service_.read_body({request, translated}, read);
}

void ResponsesApi::recall(HttpRequest head, const RequestPtr& read, const ExchangePtr& exchange,
                          TranslatedExchange::Slot slot) {
  const auto left = std::make_shared<bool>(false);
  exchange->on_gone([left] { *left = true; });
  const Scope scope = head.scope();
  find(read->previous, scope, exchange,
       [this, head = std::move(head), read, exchange, slot = std::move(slot), left](Known known) {
         if (*left) return;
         if (const auto* error = std::get_if<ApiError>(&known)) {
           ApiError e = *error;
           if (e.http_status == 404) e.param = "previous_response_id", e.code = "previous_response_not_found";
           return service_.refuse_completion(exchange, e);
         }
         go_on(head, read, std::move(std::get<ResponseRecord>(known).text), exchange, slot);
       });
}

/// `before`: the record of the response that it goes on from; empty: of none.
void ResponsesApi::go_on(HttpRequest head, const RequestPtr& read, std::string before, const ExchangePtr& exchange,
                         TranslatedExchange::Slot slot) {
  ResponsesFrame frame;
  frame.id = new_id(std::string(kIdPrefix));
  frame.created_unix_s = unix_seconds();
  if (read->store && options_.kept_bytes_max > 0) frame.keep = keeper(frame.id, head.project);
  const bool has_grammar = read->chat.body.contains("tools") || read->chat.body.contains("response_format");
  const size_t bytes = read->bytes + before.size() + (has_grammar ? Service::kInlineBytes : 0);
  auto make = [read, slot = std::move(slot), frame = std::make_shared<ResponsesFrame>(std::move(frame)),
               before = std::make_shared<std::string>(std::move(before))](
                  const HttpRequest&, const std::stop_token&) -> std::variant<OpenAiRequest, ApiError> {
    std::optional<ResponseContext> known = before->empty() ? ResponseContext{} : context_of(*before);
    if (!known) return is_damaged(read->previous);
    ResponseContext& context = *known;
    if (auto error = check_outputs(read->items, context, read->previous)) return std::move(*error);
    read->chat.body["messages"] = responses_messages(*read, context.items);
    frame->shown = std::move(read->shown);
    if (frame->keep) {
      frame->input = std::move(context.items);
      for (RequestJson& item : read->items) frame->input.push_back(std::move(item));
    }
    *slot = std::make_unique<ResponsesAnswer>(std::move(*frame));
    return std::move(read->chat);
  };
  service_.complete({head, exchange, bytes}, std::move(make));
}

std::function<void(RequestJson, std::function<void(bool)>)> ResponsesApi::keeper(const std::string& id,
                                                                                 const std::string& owner) {
  return [this, id, owner](RequestJson record, std::function<void(bool)> then) {
    auto keep = [this, id, owner, record = std::move(record)]() -> Status {
      std::string text = text_of(record);
      if (text.size() > kRecordBytesMax)
        return exhausted("with its input it has " + std::to_string(text.size()) + " bytes; at most " +
                         std::to_string(kRecordBytesMax) + " are kept of one");
      const int64_t now = runner_.now();
      return runner_.state().put_response({id, owner, now, std::move(text)},
                                          {now - options_.kept_seconds, options_.kept_bytes_max});
    };
    const auto tell = [id, then = std::move(then)](const Status& kept) {
      if (!kept.is_ok()) log::warn("response {} is not kept: {}", id, kept.message());
      then(kept.is_ok());
    };
    if (const Status asked = runner_.ask<Status>(std::move(keep), tell); !asked.is_ok()) tell(asked);
  };
}

void ResponsesApi::find(const std::string& id, const Scope& scope, const ExchangePtr& exchange,
                        std::function<void(Known)> then) {
  if (!is_id(id, std::string(kIdPrefix))) return then(not_here("response", id, "response_id"));
  const auto look = [this, id, scope, request = exchange->request_id()]() -> Known {
    const log::Field field("request_id", request);
    auto kept = runner_.state().response(id);
    if (!kept.is_ok()) return error_of_state(kept.status());
    const bool is_there = *kept && (!scope || (*kept)->owner == *scope) &&
                          (*kept)->created_at > runner_.now() - options_.kept_seconds;
    return is_there ? Known(std::move(**kept)) : not_here("response", id, "response_id");
  };
  if (const Status asked = runner_.ask<Known>(look, then); !asked.is_ok()) then(from_status(asked));
}

void ResponsesApi::show(const HttpRequest& request, const std::string& id, const ExchangePtr& exchange, Part part) {
  find(id, request.scope(), exchange,
       [this, id, owner = request.owner, peer = request.peer, exchange, part = std::move(part)](Known known) {
         if (const auto* error = std::get_if<ApiError>(&known)) return refuse_response(exchange, *error);
         HttpRequest kept{"GET", "", std::move(std::get<ResponseRecord>(known).text)};
         kept.owner = owner, kept.peer = peer;
         service_.read_body({kept, exchange}, [id, part](const HttpRequest& http, const std::stop_token&) {
           const RequestJson record = record_of(http.body);
           const auto text = std::make_shared<std::string>(record.empty() ? "" : part(record));
           return [id, text](const ExchangePtr& to) {
             if (text->empty()) return refuse_response(to, is_damaged(id));
             to->respond(200, kJsonBody, std::move(*text));
           };
         });
       });
}

void ResponsesApi::list_input(const HttpRequest& request, const std::string& id, const ExchangePtr& exchange) {
  const auto query = read_list_query(request.query, /*of_files=*/true);
  if (const auto* error = std::get_if<ApiError>(&query)) return refuse_response(exchange, *error);
  show(request, id, exchange, [list = std::get<ListQuery>(query)](const RequestJson& record) {
    RequestJson items = record.value("input", RequestJson::array());
    if (!list.ascending) std::reverse(items.begin(), items.end());
    std::vector<nlohmann::json> page;
    bool begun = list.after.empty(), more = false;
    for (const RequestJson& item : items) {
      more = begun && static_cast<int64_t>(page.size()) == list.limit;
      if (more) break;
      if (begun) page.push_back(item);
      begun = begun || item["id"] == list.after;
    }
    return dump(list_json(std::move(page), more));
  });
}

void ResponsesApi::remove(const std::string& id, const Scope& scope, const ExchangePtr& exchange) {
  find(id, scope, exchange, [this, id, exchange](Known known) {
    if (const auto* error = std::get_if<ApiError>(&known)) return refuse_response(exchange, *error);
    const auto tell = [id, exchange](const Status& removed) {
      if (!removed.is_ok()) return refuse_response(exchange, error_of_state(removed));
      exchange->respond(200, kJsonBody, text_of({{"id", id}, {"object", "response"}, {"deleted", true}}));
    };
    const Status asked = runner_.ask<Status>([this, id] { return runner_.state().remove_response(id); }, tell);
    if (!asked.is_ok()) refuse_response(exchange, from_status(asked));
  });
}

}  // namespace moestro::orchestrator

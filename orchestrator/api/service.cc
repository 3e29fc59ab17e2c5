#include "orchestrator/api/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "common/clock.h"
#include "orchestrator/api/answer_headers.h"
#include "orchestrator/api/chat_history.h"
#include "orchestrator/api/chat_prompt.h"
#include "orchestrator/api/request_rules.h"
#include "orchestrator/api/status_report.h"
#include "orchestrator/api/store_metrics.h"
#include "orchestrator/api/target_fields.h"
#include "orchestrator/api/tier_metrics.h"
#include "orchestrator/api/tokenize_request.h"
#include "orchestrator/openapi/openapi.h"
#include "orchestrator/page/status_page.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

constexpr const char* kJson = "application/json";
/// Larger ones leave a thread of the pool to others.
constexpr size_t kHeavyBytes = 256 << 10;
/// A longer text is only tokenized for /tokenize if it could be a prompt.
constexpr size_t kTokenizeBytes = 1 << 20;

WorkLimits pool_limits() { return {.threads = std::clamp<size_t>(std::thread::hardware_concurrency() / 2, 2, 8)}; }

/// A small schema or grammar can be a lot of work: bodies that seem to have one are read there too.
bool has_schemas(std::string_view body) {
  constexpr std::string_view kWords[]{"\"json_schema\"", "\"schema\"",  "\"tools\"",
                                      "\"grammar\"",     "\"guided_", "\"structured_outputs\""};
  return std::any_of(std::begin(kWords), std::end(kWords),
                     [&](std::string_view word) { return body.find(word) != std::string_view::npos; });
}

/// What the template does not look at is ignored.
void note_effort(const ServedModel& model, CompletionRequest& request) {
  if (!request.reasoning_effort.empty() && !takes_effort(model, request))
    request.ignored.push_back("reasoning_effort");
}

/// Moves the value out, or the error into `refusal`.
template <typename T>
std::optional<T> value_or(std::variant<T, ApiError>&& v, std::optional<ApiError>& refusal) {
  if (auto* error = std::get_if<ApiError>(&v)) return refusal = std::move(*error), std::nullopt;
  return std::move(std::get<T>(v));
}

}  // namespace

Service::Service(ServedModel model, ControlPlane& control, std::function<void(std::function<void()>)> post,
                 ServiceOptions options)
    : model_(std::move(model)),
      options_(options),
      control_(control),
      metrics_(model_.name),
      context_{model_, control_, metrics_, std::move(post), reading_, model_.context_max, options.mixed_warn_share},
      reading_(pool_limits(), context_.post) {}

void Service::handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  for (Extension* extension : extensions_)
    if (extension->handle(request, exchange)) return;
  std::string rest;
  const Served* found = find_route(request.path, rest);
  ApiError error = bad_request("");
  if (found == nullptr) {
    error.http_status = 404;
    error.type = "not_found_error";
    error.message = "there is no " + request.path + " here";
    return refuse(exchange, error);
  }
  if (found->method != request.method) {
    // The server answers HEAD wherever there is a GET.
    const std::string allowed = found->method == "GET" ? "GET, HEAD" : found->method;
    return refuse(exchange, wrong_method(request.path, request.method, found->method), {{"Allow", allowed}});
  }
  found->act(*this, {request, exchange}, rest);
}

std::optional<ApiError> Service::not_ready() const {
  if (control_.had_worker()) return std::nullopt;  // one that is being replaced: requests wait for it
  ApiError e;
  e.http_status = 503;
  e.type = "unavailable_error";
  e.message = "Loading model";
  return e;
}

ApiError Service::unknown_model(const std::string& name) const {
  ApiError e = bad_request("the model '" + name + "' is not served here; '" + model_.name + "' is", "model");
  e.http_status = 404;
  e.code = "model_not_found";
  return e;
}

void Service::refuse_completion(const std::shared_ptr<Exchange>& exchange, const ApiError& error) {
  metrics_.request_ended("refused", false);
  refuse(exchange, error);
}

void Service::complete_own(const Call& call, bool chat) {
  complete(call, [chat](const HttpRequest& http, const std::stop_token&) -> std::variant<OpenAiRequest, ApiError> {
    auto body = parse_body(http.body);
    if (auto* error = std::get_if<ApiError>(&body)) return std::move(*error);
    return OpenAiRequest{std::move(std::get<RequestJson>(body)), chat};
  });
}

void Service::complete(const Call& call, Make make) {
  if (const auto error = not_ready()) return refuse_completion(call.exchange, *error);
  read_body(call, [this, make = std::move(make)](const HttpRequest& request,
                                                 const std::stop_token& stop) -> ReadingPool::Outcome {
    auto read = std::make_shared<std::variant<ReadRequest, ApiError>>(read_request(request, make, stop));
    return [this, read](const std::shared_ptr<Exchange>& e) { begin(e, std::move(*read)); };
  });
}

void Service::count_tokens(const Call& call, Make make) {
  read_body(call, [this, make = std::move(make)](const HttpRequest& http,
                                                 const std::stop_token& stop) -> ReadingPool::Outcome {
    const auto read = tokenize_request(http, make, stop);
    if (const auto* error = std::get_if<ApiError>(&read))
      return [this, e = *error](const std::shared_ptr<Exchange>& exchange) { refuse_completion(exchange, e); };
    const auto& [request, prompts] = std::get<TokenizedRequest>(read);
    size_t tokens = 0;
    for (const TokenizedPrompt& prompt : prompts) tokens += prompt.tokens();
    Headers headers;
    add_ignored(headers, request.ignored);
    return [tokens, headers](const std::shared_ptr<Exchange>& exchange) {
      exchange->respond(200, kJson, dump({{"prompt_tokens", tokens}}), headers);
    };
  });
}

void Service::read_body(const Call& call, Read read) {
  HttpRequest& request = call.request;
  const size_t bytes = request.body.size() + call.more_bytes;
  if (bytes <= kInlineBytes && !has_schemas(request.body)) return read(request, {})(call.exchange);
  const std::string flow = request.owner.empty() ? request.peer : request.owner;
  const bool heavy = bytes > kHeavyBytes;
  const bool taken = reading_.run(
      flow, heavy,
      [r = std::make_shared<HttpRequest>(std::move(request)), read = std::move(read)](const std::stop_token& stop) {
        return read(*r, stop);
      },
      call.exchange);
  if (taken) return;
  refuse_completion(call.exchange,
                    from_status(exhausted("many large requests are being read already; try again later")));
}

std::variant<Service::TokenizedRequest, ApiError> Service::tokenize_request(const HttpRequest& http, const Make& make,
                                                                            const std::stop_token& stop) const {
  std::optional<ApiError> refusal;
  auto made = value_or(make(http, stop), refusal);
  if (!made) return *refusal;
  auto request = value_or(
      made->chat ? read_chat(made->body, options_.lenient) : read_completion(made->body, options_.lenient), refusal);
  if (!request) return *refusal;
  if (made->until_end) request->max_tokens.reset();
  request->in_order = made->in_order;
  request->ignored.insert(request->ignored.end(), made->ignored.begin(), made->ignored.end());
  if (request->model && !model_.is_called(*request->model)) return unknown_model(*request->model);
  if (const auto error = check_token_ids(*request, model_.vocab)) return *error;
  if (const auto error = check_target_fields(*request, model_)) return *error;
  note_effort(model_, *request);
  request->owner = http.owner;
  if (request->wants_mixed && !control_.serves_mixed())
    return bad_request("'moestro.mixed' is true, and no worker with --mixed is connected", "moestro");
  request->prefix_domain = prefix_domain(http, request->cache_salt, request->low_share_max);
  auto prompts = value_or(tokenize_prompts(*request, stop), refusal);
  if (!prompts) return *refusal;
  return TokenizedRequest{std::move(*request), std::move(*prompts)};
}

std::variant<Service::ReadRequest, ApiError> Service::read_request(const HttpRequest& http, const Make& make,
                                                                   const std::stop_token& stop) const {
  std::optional<ApiError> refusal;
  auto tokenized = value_or(tokenize_request(http, make, stop), refusal);
  if (!tokenized) return *refusal;
  auto& [request, prompts] = *tokenized;
  if (const auto error = check_lengths(request, prompts)) return *error;
  const bool reasoning_open = !prompts.empty() && prompts.front().reasoning_open;
  auto constraint = value_or(constraints_.of(request, reasoning_open, stop), refusal);
  if (!constraint) return *refusal;
  auto rules = value_or(token_rules(request, model_), refusal);
  if (!rules) return *refusal;
  constraint->rules = std::move(*rules);
  if (request.tool_choice != ToolChoice::kNone) {
    request.tool_arguments = arguments_of_tools(request.tools);
    if (model_.tool_form->ids_have_names()) request.past_call_ids = call_ids(request.messages);
  }
  // What is large and was of use only here goes here, and not on the server's thread.
  request.prompts.clear();
  for (RequestJson* used : {&request.messages, &request.template_arguments, &request.tools,
                            &request.output_format.what})
    *used = nullptr;
  return ReadRequest{std::move(request), std::move(prompts), std::move(*constraint)};
}

void Service::begin(const std::shared_ptr<Exchange>& exchange, std::variant<ReadRequest, ApiError> read) {
  if (const auto* error = std::get_if<ApiError>(&read)) return refuse_completion(exchange, *error);
  auto& [request, prompts, constraint] = std::get<ReadRequest>(read);
  const bool chat = request.chat;
  const uint64_t seed = request.seed.value_or(random_());
  char id[32];
  std::snprintf(id, sizeof id, "%s-%016llx", chat ? "chatcmpl" : "cmpl", static_cast<unsigned long long>(random_()));
  AnswerFrame frame{id, request.model.value_or(model_.name), unix_seconds(), chat};
  std::make_shared<Completion>(context_, std::move(frame), std::move(request), std::move(prompts),
                               std::move(constraint), seed, exchange)
      ->start();
}

/// No project's name has a zero byte, so no salt makes one project's domain another's. What bounds the share of low
/// copies does not build upon KV that more of them may have made. That is decided by the request alone: a worker with
/// low copies may join while it waits.
std::string Service::prefix_domain(const HttpRequest& http, const std::string& cache_salt,
                                   double low_share_max) const {
  return fmt::format("{}:", low_share_max) + (options_.share_prefixes ? "" : http.project) + '\0' + cache_salt;
}

void Service::health(const Call& call) const {
  const bool draining = control_.draining();
  if (control_.has_worker() && !draining)
    return call.exchange->respond(200, kJson, dump(health_report(sources())));
  ApiError e;
  e.http_status = 503;
  e.type = "unavailable_error";
  e.message = draining                 ? "the server is shutting down"
              : !control_.had_worker() ? "Loading model"
                                       : "no worker: the last one is gone, and none has replaced it yet";
  refuse(call.exchange, e);
}

void Service::metrics(const Call& call) const {
  const ControlSnapshot control = control_.snapshot();
  const auto store = store_ != nullptr ? store_->latest() : std::nullopt;
  std::string text = metrics_.text(control) + tier_metrics_text(model_.name, control, store);
  if (store_ != nullptr) text += store_metrics_text(store);
  for (const Extension* extension : extensions_) text += extension->metrics();
  call.exchange->respond(200, "text/plain; version=0.0.4", text);
}

/// An alias has the model's own name as root and parent.
json Service::model_entry(const std::string& id) const {
  json meta{{"n_vocab", model_.vocab}, {"n_ctx", context()}, {"n_ctx_train", model_.context_max}};
  if (model_.target) meta["encoder_decoder"] = true, meta["n_source_max"] = source_max();
  return {{"id", id},
          {"object", "model"},
          {"created", model_.created_unix_s},
          {"owned_by", "moestro"},
          {"root", model_.name},
          {"parent", id == model_.name ? json() : json(model_.name)},
          {"meta", std::move(meta)}};
}

void Service::models(const Call& call) const {
  json list = json::array({model_entry(model_.name)});
  for (const std::string& alias : model_.aliases) list.push_back(model_entry(alias));
  call.exchange->respond(200, kJson, dump({{"object", "list"}, {"data", std::move(list)}}));
}

void Service::model(const Call& call, const std::string& id) const {
  if (!model_.is_called(id)) return refuse(call.exchange, unknown_model(id));
  call.exchange->respond(200, kJson, dump(model_entry(id)));
}

void Service::answer_text(const Call& call,
                          TextOrError (Service::*read)(const HttpRequest&, const std::stop_token&) const) {
  read_body(call, [this, read](const HttpRequest& request, const std::stop_token& stop) -> ReadingPool::Outcome {
    auto text = std::make_shared<TextOrError>((this->*read)(request, stop));
    return [text](const std::shared_ptr<Exchange>& exchange) {
      if (const auto* error = std::get_if<ApiError>(text.get())) return refuse(exchange, *error);
      auto& [body, ignored] = std::get<TextAnswer>(*text);
      Headers headers;
      add_ignored(headers, ignored);
      exchange->respond(200, kJson, std::move(body), headers);
    };
  });
}

Service::TextOrError Service::tokens_of(const HttpRequest& http, const std::stop_token& stop) const {
  std::optional<ApiError> refusal;
  const auto body = value_or(parse_body(http.body), refusal);
  if (!body) return *refusal;
  auto request = value_or(read_tokenize(*body, options_.lenient), refusal);
  if (!request) return *refusal;
  std::vector<TokenId> ids;
  if (!request->chat.is_null()) {
    auto chat = value_or(read_chat(request->chat, options_.lenient), refusal);
    if (!chat) return *refusal;
    auto prompt = value_or(apply_template(*chat, stop), refusal);
    if (!prompt) return *refusal;
    ids = std::move(prompt->ids);
    request->ignored.insert(request->ignored.end(), chat->ignored.begin(), chat->ignored.end());
  } else {
    if (request->text.size() > kTokenizeBytes)
      if (const auto error = check_text(request->text.size(), "content")) return *error;
    auto encoded = model_.tokenizer.encode(request->text, request->add_special_tokens, stop);
    if (!encoded.is_ok()) return from_status(encoded.status());
    ids = std::move(*encoded);
  }
  json answer = tokenize_answer(*request, ids, model_.tokenizer);
  answer["max_model_len"] = model_.target ? source_max() : context();
  return TextAnswer{dump(answer), std::move(request->ignored)};
}

/// A chat's prompt, as llama.cpp's server has it.
Service::TextOrError Service::prompt_of(const HttpRequest& http, const std::stop_token& stop) const {
  std::optional<ApiError> refusal;
  const auto body = value_or(parse_body(http.body), refusal);
  if (!body) return *refusal;
  auto chat = value_or(read_chat(*body, options_.lenient), refusal);
  if (!chat) return *refusal;
  if (chat->model && !model_.is_called(*chat->model)) return unknown_model(*chat->model);
  const auto prompt = value_or(apply_template(*chat, stop), refusal);
  if (!prompt) return *refusal;
  note_effort(model_, *chat);
  return TextAnswer{dump({{"prompt", prompt->text}}), std::move(chat->ignored)};
}

Service::TextOrError Service::text_of(const HttpRequest& http, const std::stop_token&) const {
  std::optional<ApiError> refusal;
  const auto body = value_or(parse_body(http.body), refusal);
  if (!body) return *refusal;
  std::vector<std::string> ignored;
  const auto ids = value_or(read_detokenize(*body, model_.vocab, options_.lenient ? &ignored : nullptr), refusal);
  if (!ids) return *refusal;
  const std::string text = model_.tokenizer.decode(*ids, /*skip_special=*/false);
  return TextAnswer{dump({{"content", text}, {"prompt", text}}), std::move(ignored)};
}

void Service::version(const Call& call) const {
  call.exchange->respond(200, kJson, dump({{"version", MOESTRO_VERSION}}));
}

void Service::openapi(const Call& call) const {
  static const std::string kDocument = openapi_document(MOESTRO_VERSION);
  call.exchange->respond(200, kJson, kDocument);
}

/// As other servers have it: the requests under way.
void Service::load(const Call& call) const {
  call.exchange->respond(200, kJson, dump({{"server_load", metrics_.running()}}));
}

void Service::page(const Call& call) const {
  const StatusPage& page = status_page();
  call.exchange->respond(200, "text/html; charset=utf-8", page.html, page.headers);
}

StatusSources Service::sources() const {
  StatusSources now;
  now.model = model_.name;
  now.uptime_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  now.control = control_.snapshot();
  now.draining = control_.draining(), now.had_worker = control_.had_worker();
  now.queue_max = control_.queue_max();
  now.forecast = options_.forecast;
  now.has_store = store_ != nullptr;
  if (store_ != nullptr) now.store = store_->latest();
  return now;
}

void Service::status(const Call& call) const {
  const auto asked = [query = "&" + call.request.query + "&"](const char* what) {
    return query.find("&" + std::string(what) + "=1&") != std::string::npos;
  };
  StatusSources now = sources();
  if (asked("experts")) now.experts = control_.expert_shares();
  json more = json::object();
  for (const Extension* extension : extensions_) more.update(extension->status(call.request));
  json report = status_report(now, metrics_, more);
  report["recent"] = history_.recent(report);
  if (asked("history")) report["history"] = history_.report();
  call.exchange->respond(200, kJson, dump(report));
}

}  // namespace moestro::orchestrator

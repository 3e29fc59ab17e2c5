#include "orchestrator/dialects/dialect_text.h"

#include <algorithm>

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
}

/// Words like max_tokens stand in messages also without quotes; others could be English.
void replace_word(std::string& text, std::string_view word, std::string_view by) {
  const auto in_word = [&](size_t at) {
    return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
  };
  for (size_t at = 0; (at = text.find(word, at)) != std::string::npos;) {
    const bool whole = (at == 0 || !in_word(at - 1)) && !in_word(at + word.size());
    if (whole) text.replace(at, word.size(), by);
    at += whole ? by.size() : word.size();
  }
}

int status_of(const std::string& type) {
  if (type == "invalid_request_error" || type == "exceed_context_size_error") return 400;
  if (type == "rate_limit_error") return 429;
  return type == "unavailable_error" ? 503 : 500;
}

}  // namespace

ApiError renamed(ApiError error, std::span<const FieldName> names) {
  for (const FieldName& name : names) {
    const std::string quoted = "'" + std::string(name.openai) + "'";
    replace_all(error.message, quoted, "'" + std::string(name.own) + "'");
    if (name.openai.find('_') != std::string_view::npos) replace_word(error.message, name.openai, name.own);
  }
  const auto own = std::find_if(names.begin(), names.end(), [&](const auto& n) { return n.openai == error.param; });
  if (own != names.end()) error.param = own->own;
  return error;
}

ApiError error_of(int http_status, const json& body) {
  ApiError e;
  const auto found = body.is_object() ? body.find("error") : body.end();
  const json error = found != body.end() && found->is_object() ? *found : json::object();
  if (error.contains("type")) e.type = string_at(error, "type");
  e.message = string_at(error, "message");
  e.param = string_at(error, "param");
  e.code = string_at(error, "code");
  if (const auto n = error.find("n_prompt_tokens"); n != error.end() && n->is_number()) e.n_prompt_tokens = *n;
  if (const auto n = error.find("n_ctx"); n != error.end() && n->is_number()) e.n_ctx = *n;
  e.http_status = http_status != 0 ? http_status : status_of(e.type);
  return e;
}

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string event_text(std::string_view name, const json& data) {
  return (name.empty() ? "" : "event: " + std::string(name) + "\n") + "data: " + text_of(data) + "\n\n";
}

/// The one place that reads `stop_reason` of a choice: a stop string that has ended it, the id of a stop token, or
/// null for the model's own end. An answer without it does not say.
ChoiceEnd end_of(const json& choice) {
  ChoiceEnd end;
  end.reason = string_at(choice, "finish_reason");
  const auto why = choice.find("stop_reason");
  end.says_why = why != choice.end();
  if (end.says_why && why->is_string()) end.stop_word = why->get<std::string>();
  return end;
}

void read_usage(const json& answer, Usage& usage) {
  const auto found = answer.find("usage");
  if (found == answer.end() || !found->is_object()) return;
  usage.prompt = found->value("prompt_tokens", int64_t{0});
  usage.completion = found->value("completion_tokens", int64_t{0});
  if (const auto details = found->find("prompt_tokens_details"); details != found->end() && details->is_object())
    usage.cached = details->value("cached_tokens", int64_t{0});
  usage.own = found->value("moestro", json());
}

void take_own_fields(FieldReader& f, json& body) {
  if (const json* own = f.field("moestro")) body["moestro"] = *own;
}

void add_own(const Usage& usage, json& to) {
  if (!usage.own.is_null()) to["moestro"] = usage.own;
}

std::string string_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string id_from(const json& answer, const std::string& prefix) {
  const std::string id = string_at(answer, "id");
  return prefix + id.substr(std::min(id.size(), id.find('-') + 1));
}

void settle_members(FieldReader& f, const std::string& field, const json& object,
                    const std::vector<std::string_view>& known) {
  for (const auto& [name, value] : object.items()) {
    if (value.is_null() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (f.ignored() != nullptr)
      f.ignored()->push_back(field + "." + name);
    else
      f.fail(bad_request("'" + field + "' has an entry with '" + name + "', which is not known here; leave it out",
                         field));
  }
}

}  // namespace moestro::orchestrator

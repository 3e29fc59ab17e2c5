#include "orchestrator/batch/batch_line.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orchestrator/api/json_text.h"
#include "orchestrator/api/request_json.h"

namespace moestro::orchestrator {
namespace {

using nlohmann::json;

std::string id_of(const LinePlace& place) {
  return "batch_req_" + place.batch.substr(place.batch.find('_') + 1) + "_" + std::to_string(place.line);
}

std::string shown(const RequestJson& value) {
  const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 80 ? text
                           : "a " + std::string(value.type_name()) + " of " + std::to_string(text.size()) + " bytes";
}

/// Prompts, or inputs, times choices that are computed, as far as they are what they should be: the endpoint refuses
/// what is not.
uint64_t sequences_of(const RequestJson& body) {
  uint64_t n = 1;
  constexpr uint64_t kMost = 1 << 20;  // of choices: the endpoint takes far fewer
  for (const char* choices : {"n", "best_of"})
    if (const auto it = body.find(choices); it != body.end() && it->is_number_unsigned())
      n = std::max(n, std::min<uint64_t>(it->get<uint64_t>(), kMost));
  for (const char* name : {"prompt", "input"})
    if (const auto it = body.find(name); it != body.end() && it->is_array() && !it->empty() && !it->front().is_number())
      n *= it->size();
  return n;
}

uint64_t count(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_number_unsigned() ? it->get<uint64_t>() : 0;
}

}  // namespace

std::variant<BatchLine, LineProblem> read_batch_line(const std::string& text, const std::string& endpoint,
                                                     const std::string& model,
                                                     const std::vector<std::string>& aliases) {
  auto parsed = parse_body(text, "the line");
  if (auto* error = std::get_if<ApiError>(&parsed))
    return LineProblem{"", "invalid_json_line", std::move(error->message)};
  const RequestJson& line = std::get<RequestJson>(parsed);
  std::string custom_id;
  if (const auto it = line.find("custom_id"); it != line.end() && it->is_string()) custom_id = it->get<std::string>();
  if (custom_id.empty() || custom_id.size() > kCustomIdBytesMax)
    return LineProblem{"", "invalid_custom_id",
                       "'custom_id' must be a text of 1 to " + std::to_string(kCustomIdBytesMax) + " bytes"};
  const auto problem = [&](const char* code, std::string message) {
    return LineProblem{custom_id, code, std::move(message)};
  };
  for (const auto& [key, value] : line.items())
    if (key != "custom_id" && key != "method" && key != "url" && key != "body")
      return problem("unknown_field", "the line has the field '" + key.substr(0, 60) + "', which is not known here");
  if (const auto it = line.find("method"); it != line.end() && *it != "POST")
    return problem("invalid_method", "'method' is " + shown(*it) + "; only 'POST' can be");
  const auto url = line.find("url");
  if (url == line.end() || *url != endpoint)
    return problem("invalid_url", "'url' is " + (url == line.end() ? "missing" : shown(*url)) +
                                      "; this batch is for '" + endpoint + "'");
  const auto body = line.find("body");
  if (body == line.end() || !body->is_object()) return problem("invalid_body", "'body' must be an object");
  if (const auto it = body->find("stream"); it != body->end() && *it == true)
    return problem("invalid_body", "'body' asks for a stream; a batch has none");
  const auto is_it = [&body](const std::string& name) { return (*body)["model"] == name; };
  const auto it = model.empty() ? body->end() : body->find("model");
  if (it != body->end() && !it->is_null() && !is_it(model) && !std::any_of(aliases.begin(), aliases.end(), is_it))
    return problem("model_not_found", "the model " + shown(*it) + " is not served here; '" + model + "' is");
  return BatchLine{custom_id, body->dump(-1, ' ', false, json::error_handler_t::replace), sequences_of(*body)};
}

LineResult answered_line(const LinePlace& place, const std::string& custom_id, int status, const std::string& body) {
  LineResult result{place.line, status >= 200 && status < 300, "", 0, 0, 0};
  json answer = json::parse(body, nullptr, /*allow_exceptions=*/false);  // what this process has written
  if (answer.is_discarded()) answer = nullptr;
  json request_id;
  if (answer.is_object()) {
    if (const auto id = answer.find("id"); id != answer.end()) request_id = *id;
    if (const auto usage = answer.find("usage"); usage != answer.end() && usage->is_object()) {
      result.prompt_tokens = count(*usage, "prompt_tokens");
      result.completion_tokens = count(*usage, "completion_tokens");
      if (const auto details = usage->find("prompt_tokens_details"); details != usage->end() && details->is_object())
        result.cached_tokens = count(*details, "cached_tokens");
    }
  }
  result.text =
      dump({{"id", id_of(place)},
            {"custom_id", custom_id},
            {"response", {{"status_code", status}, {"request_id", std::move(request_id)}, {"body", std::move(answer)}}},
            {"error", nullptr}});
  return result;
}

LineResult refused_line(const LinePlace& place, const LineProblem& problem) {
  LineResult result{place.line, false, "", 0, 0, 0};
  result.text = dump({{"id", id_of(place)},
                      {"custom_id", problem.custom_id.empty() ? json() : json(problem.custom_id)},
                      {"response", nullptr},
                      {"error", {{"code", problem.code}, {"message", problem.message}, {"line", place.line}}}});
  return result;
}

}  // namespace moestro::orchestrator

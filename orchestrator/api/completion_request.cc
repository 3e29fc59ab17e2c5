#include "orchestrator/api/completion_request.h"

#include <algorithm>
#include <charconv>

#include "orchestrator/api/field_reader.h"
#include "orchestrator/api/output_format.h"
#include "orchestrator/api/output_request.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

constexpr int64_t kMaxTokensMax = int64_t{1} << 40;  // the context decides below
constexpr double kTopPLeast = 1e-6;

/// {"token id": bias}. Ids beyond the vocabulary are found later: the model is not known here.
void read_logit_bias(FieldReader& f, CompletionRequest& r) {
  const json* map = f.field("logit_bias");
  if (map == nullptr) return;
  const auto refuse = [&](const std::string& why) { f.fail(bad_request("'logit_bias' " + why, "logit_bias")); };
  if (!map->is_object()) return refuse("must be an object of token ids and biases");
  if (map->size() > kLogitBiasMax) return refuse("has more than " + std::to_string(kLogitBiasMax) + " tokens");
  for (const auto& [key, value] : map->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      return refuse("has a key that is no token id");
    if (!value.is_number()) return refuse("has a value that is not a number");
    const double bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100)) return refuse("has a value that is not between -100 and 100");
    r.logit_bias.emplace_back(id, static_cast<float>(bias));
  }
}

/// What both kinds of request share.
void read_common(FieldReader& f, CompletionRequest& r) {
  r.model = f.string("model");
  r.temperature = f.number("temperature", 0, 100).value_or(1.0);
  // 0 leaves the likeliest token, as anything does that is less than its probability; the sampler wants more than 0.
  r.top_p = std::max(f.number("top_p", 0, 1).value_or(1.0), kTopPLeast);
  r.min_p = f.number("min_p", 0, 1).value_or(0.0);
  r.top_k = f.integer("top_k", -1, INT32_MAX).value_or(0);
  if (r.top_k < 0) r.top_k = 0;
  r.n = f.integer("n", 1, kChoicesMax).value_or(1);
  if (const auto seed = f.integer("seed", INT64_MIN, INT64_MAX)) r.seed = static_cast<uint64_t>(*seed);
  r.stream = f.boolean("stream").value_or(false);
  r.cache_salt = f.string("cache_salt").value_or("");
  r.ignore_eos = f.boolean("ignore_eos").value_or(false);
  r.return_token_ids = f.boolean("return_token_ids").value_or(false);
  if (const json* options = f.field("stream_options")) {
    if (!options->is_object()) {
      f.fail(bad_request("'stream_options' must be an object", "stream_options"));
    } else {
      FieldReader o(*options);
      r.include_usage = o.boolean("include_usage").value_or(false);
      o.ignore("include_obfuscation");
      o.refuse_unknown();
      if (o.error()) f.fail(*o.error());
    }
  }
  if (const json* stop = f.field("stop")) {
    if (stop->is_string()) {
      r.stop.push_back(stop->get<std::string>());
    } else if (stop->is_array()) {
      for (const json& s : *stop) {
        if (s.is_string())
          r.stop.push_back(s.get<std::string>());
        else
          f.fail(bad_request("'stop' must be a string or a list of strings", "stop"));
      }
    } else {
      f.fail(bad_request("'stop' must be a string or a list of strings", "stop"));
    }
    std::erase(r.stop, std::string());
    if (r.stop.size() > 64) f.fail(bad_request("'stop' has more than 64 strings", "stop"));
  }
  r.presence_penalty = f.number("presence_penalty", -2, 2).value_or(0.0);
  r.frequency_penalty = f.number("frequency_penalty", -2, 2).value_or(0.0);
  r.repetition_penalty = f.number("repetition_penalty", 0.01, 100).value_or(1.0);
  read_logit_bias(f, r);
  read_output_format(f, r);
  for (const char* harmless : {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
    f.ignore(harmless);
}

/// What clients of other servers send along, at the values that ask for nothing.
void read_neutral(FieldReader& f) {
  const std::pair<const char*, json> kNeutral[]{{"skip_special_tokens", true},
                                                {"spaces_between_special_tokens", true},
                                                {"use_beam_search", false},
                                                {"early_stopping", false},
                                                {"length_penalty", 1.0},
                                                {"min_tokens", 0},
                                                {"include_stop_str_in_output", false}};
  for (const auto& [name, value] : kNeutral) f.only(name, value, "only " + value.dump() + " is supported");
}

std::optional<std::vector<TokenId>> token_ids(const json& list) {
  std::vector<TokenId> ids;
  for (const json& id : list) {
    if (!id.is_number_integer()) return std::nullopt;
    const auto n = id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX ? int64_t{INT32_MAX} : id.get<int64_t>();
    ids.push_back(static_cast<TokenId>(std::max<int64_t>(n, INT32_MIN)));
  }
  return ids;
}

void read_messages(FieldReader& f, CompletionRequest& r) {
  const json* messages = f.field("messages");
  const auto refuse = [&](const std::string& why) { f.fail(bad_request("'messages' " + why, "messages")); };
  if (messages == nullptr) return refuse("is missing: a list of {role, content}");
  if (!messages->is_array() || messages->empty()) return refuse("must be a list with at least one {role, content}");
  r.messages = json::array();
  for (const json& m : *messages) {
    if (!m.is_object()) return refuse("has an entry that is no object");
    const auto role = m.find("role");
    if (role == m.end() || !role->is_string()) return refuse("has an entry without a 'role'");
    const auto content = m.find("content"), calls = m.find("tool_calls");
    json plain = m;
    const bool calls_tools = calls != m.end() && calls->is_array() && !calls->empty();
    if (calls_tools) {
      if (const std::string why = plain_tool_calls(plain["tool_calls"]); !why.empty()) return refuse(why);
    }
    if (content == m.end() || content->is_null()) {
      if (!calls_tools) return refuse("has an entry without 'content'");
      r.messages.push_back(std::move(plain));  // what was said are the calls
      continue;
    }
    if (content->is_array()) {  // parts: text ones are joined, others are not for this model
      std::string text;
      for (const json& part : *content) {
        if (!part.is_object() || part.value("type", json()) != "text" || !part.contains("text") ||
            !part["text"].is_string())
          return refuse("has a part that is not {\"type\":\"text\",\"text\":...}; only text is supported");
        text += part["text"].get<std::string>();
      }
      plain["content"] = std::move(text);
    } else if (!content->is_string()) {
      return refuse("has an entry whose 'content' is neither a string nor a list of text parts");
    }
    r.messages.push_back(std::move(plain));
  }
}

std::variant<CompletionRequest, ApiError> finish(FieldReader& f, CompletionRequest&& r, bool lenient) {
  read_neutral(f);
  if (lenient)
    r.ignored = f.unknown();
  else
    f.refuse_unknown();
  if (f.error()) return *f.error();
  return std::move(r);
}

}  // namespace

std::vector<PromptInput> read_prompts(FieldReader& f, const std::string& name) {
  const json* prompt = f.field(name);
  std::vector<PromptInput> prompts;
  const auto refuse = [&](const std::string& why) {
    f.fail(bad_request("'" + name + "' " + why, name));
    return std::vector<PromptInput>();
  };
  if (prompt == nullptr) return refuse("is missing: a string, a list of token ids, or a list of either");
  if (prompt->is_string()) return {prompt->get<std::string>()};
  if (!prompt->is_array()) return refuse("must be a string, a list of token ids, or a list of either");
  if (prompt->empty()) return refuse("is an empty list");
  if (prompt->front().is_number()) {
    auto ids = token_ids(*prompt);
    if (!ids) return refuse("mixes token ids with something else");
    return {std::move(*ids)};
  }
  if (prompt->size() > kPromptsMax)
    return refuse("has more than " + std::to_string(kPromptsMax) + " entries; send several requests");
  for (const json& one : *prompt) {
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
      continue;
    }
    std::optional<std::vector<TokenId>> ids;
    if (one.is_array()) ids = token_ids(one);
    if (!ids || ids->empty()) return refuse("must be a string, a list of token ids, or a list of either");
    prompts.emplace_back(std::move(*ids));
  }
  return prompts;
}

std::variant<CompletionRequest, ApiError> read_completion(const json& body, bool lenient) {
  FieldReader f(body);
  CompletionRequest r;
  r.prompts = read_prompts(f, "prompt");
  read_common(f, r);
  r.echo = f.boolean("echo").value_or(false);
  r.max_tokens = f.integer("max_tokens", 0, kMaxTokensMax).value_or(16);
  r.logprobs = static_cast<int>(f.integer("logprobs", 0, kTopLogprobsMax).value_or(-1));
  if (const auto best_of = f.integer("best_of", 1, kChoicesMax); best_of && *best_of != r.n)
    f.fail(not_supported("best_of", "not supported unless it equals 'n'"));
  f.only("suffix", "", "not supported; leave it out");
  if (*r.max_tokens == 0 && !r.echo)
    f.fail(bad_request("'max_tokens' 0 asks for nothing: give at least 1, or echo=true to score the prompt",
                       "max_tokens"));
  return finish(f, std::move(r), lenient);
}

std::variant<CompletionRequest, ApiError> read_chat(const json& body, bool lenient) {
  FieldReader f(body);
  CompletionRequest r;
  r.chat = true;
  read_messages(f, r);
  read_common(f, r);
  r.max_tokens = f.integer("max_tokens", 1, kMaxTokensMax);
  if (const auto newer = f.integer("max_completion_tokens", 1, kMaxTokensMax)) r.max_tokens = newer;
  const bool logprobs = f.boolean("logprobs").value_or(false);
  const auto top = f.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top && *top > 0 && !logprobs) f.fail(bad_request("'top_logprobs' needs logprobs=true", "top_logprobs"));
  if (logprobs) r.logprobs = static_cast<int>(top.value_or(0));
  r.template_arguments = json::object();
  if (const json* more = f.field("chat_template_kwargs")) {
    if (more->is_object())
      r.template_arguments = *more;
    else
      f.fail(bad_request("'chat_template_kwargs' must be an object", "chat_template_kwargs"));
  }
  read_tools(f, r);
  f.only("functions", json::array(), "not supported; use 'tools'");
  f.only("function_call", "none", "not supported; use 'tool_choice'");
  f.only("modalities", json::array({"text"}), "only text is supported");
  f.only("add_generation_prompt", true, "only true is supported");
  f.only("continue_final_message", false, "only false is supported");
  return finish(f, std::move(r), lenient);
}

}  // namespace moestro::orchestrator

#include "orchestrator/api/completion_request.h"

#include <algorithm>

#include "orchestrator/api/field_reader.h"
#include "orchestrator/api/output_format.h"
#include "orchestrator/api/output_request.h"
#include "orchestrator/api/sampling_request.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

constexpr int64_t kMaxTokensMax = int64_t{1} << 40;  // the context decides below
constexpr double kTopPLeast = 1e-6;

/// {"moestro": {...}}: what no other server has.
void read_own_fields(FieldReader& f, CompletionRequest& r) {
  const json* own = f.field("moestro");
  if (own == nullptr) return;
  if (!own->is_object()) return f.fail(bad_request("'moestro' must be an object", "moestro"));
  FieldReader o(*own, f, "moestro");
  const auto mixed = o.boolean("mixed");
  const auto share = o.number("mixed_max_share", 0, 1);
  r.wants_mixed = mixed.value_or(false);
  r.low_share_max = mixed.value_or(true) ? share.value_or(1) : 0;
  o.settle_unknown();
  if (o.error()) f.fail(*o.error());
}

/// What both kinds of request share.
void read_common(FieldReader& f, CompletionRequest& r) {
  r.model = f.string("model");
  r.sampling.temperature = static_cast<float>(f.number("temperature", 0, 100).value_or(1));
  // 0 leaves the likeliest token, as anything does that is less than its probability; the sampler wants more than 0.
  r.sampling.top_p = static_cast<float>(std::max(f.number("top_p", 0, 1).value_or(1), kTopPLeast));
  r.sampling.min_p = static_cast<float>(f.number("min_p", 0, 1).value_or(0));
  r.sampling.top_k = static_cast<int32_t>(std::max<int64_t>(f.integer("top_k", -1, INT32_MAX).value_or(0), 0));
  r.n = f.integer("n", 1, kChoicesMax).value_or(1);
  if (const auto seed = f.integer("seed", INT64_MIN, INT64_MAX)) r.seed = static_cast<uint64_t>(*seed);
  r.stream = f.boolean("stream").value_or(false);
  r.cache_salt = f.string("cache_salt").value_or("");
  read_own_fields(f, r);
  r.ignore_eos = f.boolean("ignore_eos").value_or(false);
  r.return_token_ids = f.boolean("return_token_ids").value_or(false);
  if (const json* options = f.field("stream_options")) {
    if (!options->is_object()) {
      f.fail(bad_request("'stream_options' must be an object", "stream_options"));
    } else {
      FieldReader o(*options, f, "stream_options");
      r.include_usage = o.boolean("include_usage").value_or(false);
      o.ignore("include_obfuscation");
      o.settle_unknown();
      if (o.error()) f.fail(*o.error());
    }
  }
  r.sampling.presence_penalty = static_cast<float>(f.number("presence_penalty", -2, 2).value_or(0));
  r.sampling.frequency_penalty = static_cast<float>(f.number("frequency_penalty", -2, 2).value_or(0));
  r.sampling.repetition_penalty = static_cast<float>(f.number("repetition_penalty", 0.01, 100).value_or(1));
  read_sampling(f, r);
  read_output_format(f, r);
  for (const char* harmless : {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"})
    f.ignore(harmless);
}

/// What clients of other servers send along, at the values that ask for nothing.
void read_neutral(FieldReader& f) {
  const std::pair<const char*, json> kNeutral[]{{"spaces_between_special_tokens", true},
                                                {"use_beam_search", false},
                                                {"early_stopping", false},
                                                {"length_penalty", 1.0}};
  for (const auto& [name, value] : kNeutral) f.only(name, value, "only " + value.dump() + " is supported");
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

/// What the chat template makes of the messages, and how much of what it opens is shown.
void read_template_fields(FieldReader& f, CompletionRequest& r) {
  r.template_arguments = json::object();
  if (const json* more = f.field("chat_template_kwargs")) {
    if (more->is_object())
      r.template_arguments = *more;
    else
      f.fail(bad_request("'chat_template_kwargs' must be an object", "chat_template_kwargs"));
  }
  r.continue_final_message = f.boolean("continue_final_message").value_or(false);
  r.add_generation_prompt = f.boolean("add_generation_prompt").value_or(!r.continue_final_message);
  if (r.continue_final_message && r.add_generation_prompt)
    f.fail(bad_request("'continue_final_message' and 'add_generation_prompt' exclude each other",
                       "continue_final_message"));
  const auto may_go_on = [](const json& message) {
    return message["role"] == "assistant" && message.contains("content") && message["content"].is_string();
  };
  if (r.continue_final_message && !r.messages.empty() && !may_go_on(r.messages.back()))
    f.fail(bad_request("'continue_final_message' needs a last message of the role 'assistant' with 'content'",
                       "continue_final_message"));
  r.include_reasoning = f.boolean("include_reasoning").value_or(true);
  r.reasoning_effort = f.string("reasoning_effort").value_or("");
  const std::string_view kEfforts[]{"", "none", "minimal", "low", "medium", "high", "xhigh"};
  if (std::ranges::find(kEfforts, r.reasoning_effort) == std::end(kEfforts))
    f.fail(bad_request("'reasoning_effort' must be \"none\", \"minimal\", \"low\", \"medium\", \"high\" or \"xhigh\"",
                       "reasoning_effort"));
}

std::variant<CompletionRequest, ApiError> finish(FieldReader& f, CompletionRequest&& r) {
  if (r.max_tokens && r.min_tokens > *r.max_tokens)
    f.fail(bad_request("'min_tokens' is more than 'max_tokens'", "min_tokens"));
  read_neutral(f);
  f.settle_unknown();
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

namespace {

std::optional<PromptInput> read_decoder_prompt(FieldReader& f) {
  const char* const name = "decoder_prompt";
  const json* prompt = f.field(name);
  if (prompt == nullptr) return std::nullopt;
  if (prompt->is_string()) return prompt->get<std::string>();
  auto ids = prompt->is_array() ? token_ids(*prompt) : std::nullopt;
  if (!ids) return f.fail(bad_request("'decoder_prompt' must be a string or a list of token ids", name)), std::nullopt;
  return std::move(*ids);
}

}  // namespace

std::variant<CompletionRequest, ApiError> read_completion(const json& body, bool lenient) {
  CompletionRequest r;
  FieldReader f(body, lenient ? &r.ignored : nullptr);
  r.prompts = read_prompts(f, "prompt");
  r.decoder_prompt = read_decoder_prompt(f);
  read_common(f, r);
  r.echo = f.boolean("echo").value_or(false);
  r.max_tokens = f.integer("max_tokens", 0, kMaxTokensMax).value_or(16);
  r.logprobs = static_cast<int>(f.integer("logprobs", 0, kTopLogprobsMax).value_or(-1));
  r.best_of = f.integer("best_of", 1, kChoicesMax).value_or(r.n);
  if (r.best_of < r.n) f.fail(bad_request("'best_of' is less than 'n'", "best_of"));
  if (r.best_of > r.n && r.stream)
    f.fail(not_supported("best_of", "not with stream=true: the best are known when all have ended"));
  f.only("suffix", "", "not supported; leave it out");
  if (*r.max_tokens == 0 && !r.echo && r.prompt_logprobs < 0)
    f.fail(bad_request(
        "'max_tokens' 0 asks for nothing: give at least 1, or echo=true or prompt_logprobs to score the prompt",
        "max_tokens"));
  return finish(f, std::move(r));
}

std::variant<CompletionRequest, ApiError> read_chat(const json& body, bool lenient) {
  CompletionRequest r;
  FieldReader f(body, lenient ? &r.ignored : nullptr);
  r.chat = true;
  read_messages(f, r);
  read_common(f, r);
  r.max_tokens = f.integer("max_tokens", 1, kMaxTokensMax);
  if (const auto newer = f.integer("max_completion_tokens", 1, kMaxTokensMax)) r.max_tokens = newer;
  const bool logprobs = f.boolean("logprobs").value_or(false);
  const auto top = f.integer("top_logprobs", 0, kTopLogprobsMax);
  if (top && *top > 0 && !logprobs) f.fail(bad_request("'top_logprobs' needs logprobs=true", "top_logprobs"));
  if (logprobs) r.logprobs = static_cast<int>(top.value_or(0));
  r.best_of = r.n;
  read_tools(f, r);
  f.only("functions", json::array(), "not supported; use 'tools'");
  f.only("function_call", "none", "not supported; use 'tool_choice'");
  f.only("modalities", json::array({"text"}), "only text is supported");
  read_template_fields(f, r);
  return finish(f, std::move(r));
}

}  // namespace moestro::orchestrator

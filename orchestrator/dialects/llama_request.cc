#include "orchestrator/dialects/llama_request.h"

#include <algorithm>

#include "orchestrator/dialects/dialect_text.h"
#include "orchestrator/dialects/llama_answer.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

constexpr FieldName kLlamaNames[]{{"max_tokens", "n_predict"},
                                  {"repetition_penalty", "repeat_penalty"},
                                  {"logprobs", "n_probs"},
                                  {"response_format", "json_schema"},
                                  {"return_token_ids", "return_tokens"}};

/// llama-server's own, which are not OpenAI's.
const std::pair<const char*, json> kDefaults[]{{"temperature", 0.8}, {"top_k", 40}, {"top_p", 0.95}, {"min_p", 0.05}};

/// Samplers and other features that are not here, at the value that turns them off.
const std::pair<const char*, json> kOff[]{{"mirostat", 0},
                                          {"dry_multiplier", 0.0},
                                          {"xtc_probability", 0.0},
                                          {"typical_p", 1.0},
                                          {"tfs_z", 1.0},
                                          {"dynatemp_range", 0.0},
                                          {"post_sampling_probs", false},
                                          {"n_keep", 0},
                                          {"n_discard", 0},
                                          {"n_indent", 0},
                                          {"t_max_predict_ms", 0},
                                          {"t_max_prompt_ms", 0},
                                          {"min_keep", 0},
                                          {"lora", json::array()},
                                          {"response_fields", json::array()},
                                          {"timings_per_token", false},
                                          {"return_progress", false},
                                          {"n_cmpl", 1},
                                          {"adaptive_target", -1.0},
                                          {"image_data", json::array()}};

/// Only details of those, or of where and how something is cached.
constexpr const char* kHarmless[]{
    "mirostat_tau",       "mirostat_eta",          "dry_base",          "xtc_threshold", "dry_allowed_length",
    "dry_penalty_last_n", "dry_sequence_breakers", "dynatemp_exponent", "cache_prompt",  "id_slot",
    "adaptive_decay"};

class LlamaReader {
 public:
  LlamaReader(const json& body, bool lenient, const LlamaTexts& texts)
      : f_(body, lenient ? &out_.ignored : nullptr), texts_(texts) {}
  std::variant<Translated, ApiError> read();

 private:
  void fail(const std::string& field, const std::string& why) { f_.fail(bad_request("'" + field + "' " + why, field)); }
  void set(const char* field, json value) { out_.body[field] = std::move(value); }
  /// Sends `field` as `openai` and shows it in the settings.
  void number(const char* field, const char* openai, const json& by_default);
  std::vector<TokenId> encode(const std::string& text, bool add_special, const char* field);
  void read_prompt();
  void read_mixed_prompt(const json& list);
  void read_length();
  void read_penalties();
  void read_bias();
  void bias_text(const std::string& text, const json& bias);
  void add_bias(const json& token, const json& value);
  void read_output();
  void read_off();

  OpenAiRequest out_{.body = json::object(), .chat = false};
  FieldReader f_;  ///< names in it what it ignores
  const LlamaTexts& texts_;
  LlamaSettings settings_;
};

void LlamaReader::number(const char* field, const char* openai, const json& by_default) {
  const json* given = f_.field(field);
  if (given != nullptr && !given->is_number()) return fail(field, "must be a number");
  const json& value = given != nullptr ? *given : by_default;
  set(openai, value);
  settings_.shown[field] = value;
}

std::vector<TokenId> LlamaReader::encode(const std::string& text, bool add_special, const char* field) {
  auto ids = texts_.encode(text, add_special, field);
  if (auto* error = std::get_if<ApiError>(&ids)) return f_.fail(std::move(*error)), std::vector<TokenId>();
  return std::move(std::get<std::vector<TokenId>>(ids));
}

/// Token ids and texts in one list are one prompt.
void LlamaReader::read_mixed_prompt(const json& list) {
  const auto is_text = [](const json& piece) { return piece.is_string(); };
  if (std::count_if(list.begin(), list.end(), is_text) > static_cast<std::ptrdiff_t>(kPromptsMax))
    return fail("prompt", "has more than " + std::to_string(kPromptsMax) + " texts; join them");
  std::vector<TokenId> ids;
  for (const json& piece : list) {
    if (f_.error()) return;
    if (piece.is_string()) {
      if (texts_.of_sources)
        return fail("prompt", "has texts and token ids in one list, and an encoder-decoder model's tokenizer ends "
                              "every text; send one text, or token ids alone");
      const auto more = encode(piece.get<std::string>(), /*add_special=*/ids.empty(), "prompt");
      ids.insert(ids.end(), more.begin(), more.end());
    } else if (piece.is_number_integer() && piece >= 0 && piece <= INT32_MAX) {
      ids.push_back(piece.get<TokenId>());
    } else {
      return fail("prompt", "has an entry that is neither a text nor a token id");
    }
  }
  if (f_.error()) return;
  set("prompt", ids);
  settings_.prompt = [ids = std::move(ids), decode = texts_.decode] { return decode(ids); };
}

void LlamaReader::read_prompt() {
  const json* prompt = f_.field("prompt");
  if (prompt == nullptr) return fail("prompt", "is missing: a text, token ids, or a list of both");
  if (prompt->is_array() && prompt->size() == 1 && prompt->front().is_string()) prompt = &prompt->front();
  if (prompt->is_string()) {
    set("prompt", *prompt);
    settings_.prompt = [text = prompt->get<std::string>()] { return text; };
    return;
  }
  if (!prompt->is_array() || prompt->empty()) return fail("prompt", "must be a text, token ids, or a list of both");
  const bool several = std::none_of(prompt->begin(), prompt->end(), [](const json& p) { return p.is_number(); });
  if (several)
    return f_.fail(not_supported("prompt", "several prompts in one request are not supported; send several"));
  read_mixed_prompt(*prompt);
}

/// -1: until the end.
void LlamaReader::read_length() {
  const int64_t tokens = f_.integer("n_predict", -1, int64_t{1} << 40).value_or(-1);
  if (tokens == 0) return fail("n_predict", "0 asks for nothing: give at least 1, or -1 for all");
  out_.until_end = tokens < 0;
  if (tokens > 0) set("max_tokens", tokens);
  settings_.shown["n_predict"] = tokens;
}

/// Penalties look at the whole text here. A part of it can be asked for only where none is in force.
void LlamaReader::read_penalties() {
  const auto last = f_.integer("repeat_last_n", -1, INT32_MAX);
  number("repeat_penalty", "repetition_penalty", 1.0);
  number("presence_penalty", "presence_penalty", 0.0);
  number("frequency_penalty", "frequency_penalty", 0.0);
  if (f_.error()) return;
  const json& shown = settings_.shown;
  const bool in_force =
      shown["repeat_penalty"] != 1.0 || shown["presence_penalty"] != 0.0 || shown["frequency_penalty"] != 0.0;
  if (in_force && last.value_or(-1) != -1)
    f_.fail(not_supported("repeat_last_n", "only -1, the whole text, is supported with penalties"));
}

/// Each token of the text.
void LlamaReader::bias_text(const std::string& text, const json& bias) {
  json& biases = out_.body["logit_bias"];
  const auto ids = encode(text, /*add_special=*/false, "logit_bias");
  if (ids.size() + biases.size() > kLogitBiasMax)
    return fail("logit_bias", "has more than " + std::to_string(kLogitBiasMax) + " tokens");
  for (const TokenId id : ids) biases[std::to_string(id)] = bias;
}

void LlamaReader::add_bias(const json& token, const json& value) {
  const bool banned = value.is_boolean() && !value.get<bool>();
  if (!banned && !value.is_number()) return fail("logit_bias", "has a bias that is neither a number nor false");
  const json bias = banned ? json(-100.0) : value;  // the least there is
  if (token.is_number_integer() && token >= 0)
    out_.body["logit_bias"][text_of(token)] = bias;
  else if (token.is_string())
    bias_text(token.get<std::string>(), bias);
  else
    fail("logit_bias", "has a token that is neither an id nor a text");
}

void LlamaReader::read_bias() {
  const json* list = f_.field("logit_bias");
  if (list == nullptr) return;
  if (list->is_object()) return set("logit_bias", *list);  // as OpenAI has it
  if (!list->is_array()) return fail("logit_bias", "must be a list of [token id or text, bias or false]");
  if (list->size() > kLogitBiasMax)
    return fail("logit_bias", "has more than " + std::to_string(kLogitBiasMax) + " entries");
  for (const json& pair : *list) {
    if (f_.error()) return;
    if (!pair.is_array() || pair.size() != 2)
      return fail("logit_bias", "has an entry that is not [token id or text, bias or false]");
    add_bias(pair[0], pair[1]);
  }
}

void LlamaReader::read_output() {
  settings_.stream = f_.boolean("stream").value_or(false);
  if (settings_.stream) set("stream", true), set("stream_options", {{"include_usage", true}});
  settings_.return_tokens = f_.boolean("return_tokens").value_or(false) || settings_.stream;
  const auto probabilities = f_.integer("n_probs", 0, kTopLogprobsMax).value_or(0);
  if (probabilities > 0) set("logprobs", probabilities);
  settings_.probabilities = probabilities > 0;
  if (settings_.return_tokens || settings_.probabilities) set("return_token_ids", true);
  if (const json* stop = f_.field("stop")) {
    set("stop", *stop);
    settings_.has_stops = !stop->empty();
    settings_.shown["stop"] = *stop;
  }
  if (const json* schema = f_.field("json_schema"))
    set("response_format", {{"type", "json_schema"}, {"json_schema", {{"name", "answer"}, {"schema", *schema}}}});
  const json* grammar = f_.field("grammar");
  if (grammar != nullptr && *grammar != "") set("grammar", *grammar);
  settings_.shown["stream"] = settings_.stream;
  settings_.shown["n_probs"] = probabilities;
}

void LlamaReader::read_off() {
  for (const auto& [name, off] : kOff) f_.only(name, off, "only " + off.dump() + ", which turns it off, is supported");
  f_.only("samplers", nullptr, "their order is fixed here (docs/api.md); leave it out");
  if (const json* sigma = f_.field("top_n_sigma"); sigma != nullptr && !(sigma->is_number() && *sigma <= 0))
    f_.fail(not_supported("top_n_sigma", "only -1, which turns it off, is supported"));
  for (const char* name : kHarmless) f_.ignore(name);
}

std::variant<Translated, ApiError> LlamaReader::read() {
  read_prompt();
  read_length();
  if (const auto model = f_.string("model")) set("model", *model);
  if (const json* begin = f_.field("decoder_prompt")) set("decoder_prompt", *begin);
  for (const auto& [name, by_default] : kDefaults) number(name, name, by_default);
  read_penalties();
  const auto seed = f_.integer("seed", -1, INT64_MAX);
  constexpr int64_t kRandom = UINT32_MAX;  // what llama-server has where none was given, and shows as such
  if (seed && *seed >= 0 && *seed != kRandom) set("seed", *seed), settings_.shown["seed"] = *seed;
  const bool ignore_eos = f_.boolean("ignore_eos").value_or(false);
  set("ignore_eos", ignore_eos), settings_.shown["ignore_eos"] = ignore_eos;
  read_bias();
  read_output();
  take_own_fields(f_, out_.body);
  read_off();
  f_.settle_unknown();
  if (f_.error()) return *f_.error();
  return Translated{std::move(out_), std::make_unique<LlamaAnswer>(std::move(settings_))};
}

}  // namespace

std::variant<Translated, ApiError> read_llama_request(const json& body, bool lenient, const LlamaTexts& texts) {
  return LlamaReader(body, lenient, texts).read();
}

std::string llama_error_body(const ApiError& error, const std::string&) {
  const ApiError own = renamed(error, kLlamaNames);
  json body{{"code", own.http_status}, {"message", own.message}, {"type", own.type}};
  if (!own.param.empty()) body["param"] = own.param;
  if (own.n_prompt_tokens) body["n_prompt_tokens"] = *own.n_prompt_tokens;
  if (own.n_ctx) body["n_ctx"] = *own.n_ctx;
  return text_of({{"error", std::move(body)}});
}

}  // namespace moestro::orchestrator

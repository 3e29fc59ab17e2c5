#include "orchestrator/api/sampling_request.h"

#include <algorithm>
#include <charconv>

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

/// {"token id": bias}. Ids beyond the vocabulary are found later: the model is not known here.
void read_logit_bias(FieldReader& f, CompletionRequest& r) {
  const json* map = f.field("logit_bias");
  if (map == nullptr) return;
  const auto refuse = [&](const std::string& why) { f.fail(bad_request("'logit_bias' " + why, "logit_bias")); };
  if (!map->is_object()) return refuse("must be an object of token ids and biases");
  if (map->size() > kLogitBiasMax) return refuse("has more than " + std::to_string(kLogitBiasMax) + " tokens");
  std::vector<LogitBias> list;
  for (const auto& [key, value] : map->items()) {
    TokenId id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      return refuse("has a key that is no token id");
    if (!value.is_number()) return refuse("has a value that is not a number");
    const double bias = value.get<double>();
    if (!(bias >= -100 && bias <= 100)) return refuse("has a value that is not between -100 and 100");
    list.push_back({id, static_cast<float>(bias)});
  }
  if (!list.empty()) r.logit_bias = std::make_shared<const std::vector<LogitBias>>(std::move(list));
}

/// A string or a list of them; nothing if the field is absent or something else, which is an error of `f`.
std::vector<std::string> read_strings(FieldReader& f, const char* name, size_t most) {
  const json* value = f.field(name);
  if (value == nullptr) return {};
  const std::string quoted = "'" + std::string(name) + "'";
  const auto refuse = [&](const std::string& why) {
    f.fail(bad_request(quoted + why, name));
    return std::vector<std::string>();
  };
  if (value->is_string()) return {value->get<std::string>()};
  const auto is_string = [](const json& one) { return one.is_string(); };
  if (!value->is_array() || !std::ranges::all_of(*value, is_string))
    return refuse(" must be a string or a list of strings");
  if (value->size() > most) return refuse(" has more than " + std::to_string(most) + " strings");
  return value->get<std::vector<std::string>>();
}

/// A list of token ids. Ids beyond the vocabulary are found later: the model is not known here.
std::vector<TokenId> read_ids(FieldReader& f, const char* name, size_t most) {
  const json* value = f.field(name);
  if (value == nullptr) return {};
  std::optional<std::vector<TokenId>> ids;
  if (value->is_array()) ids = token_ids(*value);
  if (!ids) {
    f.fail(bad_request("'" + std::string(name) + "' must be a list of token ids", name));
  } else if (ids->size() > most) {
    f.fail(bad_request("'" + std::string(name) + "' has more than " + std::to_string(most) + " token ids", name));
  } else {
    return std::move(*ids);
  }
  return {};
}

void read_bad_words(FieldReader& f, CompletionRequest& r) {
  r.bad_words = read_strings(f, "bad_words", kBadWordsMax);
  for (const std::string& word : r.bad_words) {
    if (word.empty()) f.fail(bad_request("'bad_words' has an empty string", "bad_words"));
    if (word.size() > kBadWordBytesMax)
      f.fail(bad_request("'bad_words' has a string of more than " + std::to_string(kBadWordBytesMax) + " bytes",
                         "bad_words"));
  }
}

}  // namespace

std::optional<std::vector<TokenId>> token_ids(const json& list) {
  std::vector<TokenId> ids;
  for (const json& id : list) {
    if (!id.is_number_integer()) return std::nullopt;
    const auto n = id.is_number_unsigned() && id.get<uint64_t>() > INT32_MAX ? int64_t{INT32_MAX} : id.get<int64_t>();
    ids.push_back(static_cast<TokenId>(std::max<int64_t>(n, INT32_MIN)));
  }
  return ids;
}

std::vector<TokenId> end_tokens(const CompletionRequest& r, const std::vector<TokenId>& eos_ids) {
  std::vector<TokenId> ends = r.stop_token_ids;
  if (!r.ignore_eos) ends.insert(ends.end(), eos_ids.begin(), eos_ids.end());
  return ends;
}

void read_sampling(FieldReader& f, CompletionRequest& r) {
  r.stop = read_strings(f, "stop", kStopStringsMax);
  std::erase(r.stop, std::string());
  r.include_stop_str_in_output = f.boolean("include_stop_str_in_output").value_or(false);
  r.stop_token_ids = read_ids(f, "stop_token_ids", kStopTokensMax);
  r.min_tokens = f.integer("min_tokens", 0, INT32_MAX).value_or(0);
  r.allowed_token_ids = read_ids(f, "allowed_token_ids", SIZE_MAX);
  if (const json* allowed = f.field("allowed_token_ids"); allowed != nullptr && allowed->empty())
    f.fail(bad_request("'allowed_token_ids' is an empty list", "allowed_token_ids"));
  read_bad_words(f, r);
  read_logit_bias(f, r);
  r.skip_special_tokens = f.boolean("skip_special_tokens").value_or(true);
  r.prompt_logprobs = static_cast<int>(f.integer("prompt_logprobs", 0, kTopLogprobsMax).value_or(-1));
  if (r.prompt_logprobs >= 0 && r.stream) f.fail(not_supported("prompt_logprobs", "not with stream=true"));
  r.truncate_prompt_tokens = f.integer("truncate_prompt_tokens", -1, INT32_MAX).value_or(0);
  if (const json* keep = f.field("truncate_prompt_tokens"); keep != nullptr && r.truncate_prompt_tokens == 0)
    f.fail(bad_request("'truncate_prompt_tokens' must be at least 1, or -1 for as many as fit",
                       "truncate_prompt_tokens"));
  r.priority = static_cast<int32_t>(f.integer("priority", INT32_MIN, INT32_MAX).value_or(0));
}

}  // namespace moestro::orchestrator

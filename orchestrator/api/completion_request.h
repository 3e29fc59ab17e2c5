#pragma once
// The bodies of /v1/completions and /v1/chat/completions, read and checked. Text becomes tokens later (service.cc).

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "common/ids.h"
#include "common/sampling.h"
#include "orchestrator/api/api_error.h"
#include "orchestrator/api/request_json.h"
#include "orchestrator/forms/tool_arguments.h"

namespace moestro::orchestrator {

using PromptInput = std::variant<std::string, std::vector<TokenId>>;

/// What an answer must be. Tools are apart.
struct OutputFormat {
  enum class Kind : uint8_t { kText, kJsonObject, kJsonSchema, kRegex, kChoice, kGrammar };
  Kind kind = Kind::kText;
  RequestJson what = {};   ///< the schema; the text of the regular expression or grammar; a list of strings
  std::string field = {};  ///< of the request: what asked for it
};
/// kNone also where there are no tools; kRequired also where one is named.
enum class ToolChoice : uint8_t { kNone, kAuto, kRequired };

struct CompletionRequest {
  bool chat = false;
  std::optional<std::string> model;
  std::vector<PromptInput> prompts;      ///< completions
  std::optional<PromptInput> decoder_prompt;  ///< of an encoder-decoder model: how the target begins
  RequestJson messages, template_arguments;  ///< chat
  std::optional<int64_t> max_tokens;
  Sampling sampling{.temperature = 1};  ///< its seed, choice and logprobs are set for each choice
  std::shared_ptr<const std::vector<LogitBias>> logit_bias;  ///< null: none
  int64_t n = 1, best_of = 1;                                ///< of `best_of` choices of a prompt `n` are returned
  int32_t priority = 0;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop, bad_words;
  std::vector<TokenId> stop_token_ids, allowed_token_ids;  ///< allowed_token_ids: empty: all
  int64_t min_tokens = 0;
  int64_t truncate_prompt_tokens = 0;  ///< 0: not; -1: to what fits
  bool include_stop_str_in_output = false, skip_special_tokens = true;
  std::string cache_salt;  ///< requests of different salts share no KV blocks
  bool wants_mixed = false;   ///< it asks for low copies of experts by name
  double low_share_max = 1;   ///< SequenceRequest::low_share_max
  bool echo = false, stream = false, include_usage = false, ignore_eos = false, return_token_ids = false;
  OutputFormat output_format;
  RequestJson tools = RequestJson::array();
  ToolChoice tool_choice = ToolChoice::kNone;
  std::string tool_name;         ///< the one tool that is to be called
  bool parallel_tool_calls = true;
  ToolArguments tool_arguments = {};  ///< of tools that may be called, once the request has been read whole
  std::set<std::string> past_call_ids = {};  ///< likewise, where the model's calls have ids of their own
  int logprobs = -1, prompt_logprobs = -1;  ///< -1: none; else how many alternatives
  // Of chats:
  bool add_generation_prompt = true, continue_final_message = false;
  bool include_reasoning = true;
  std::string reasoning_effort;  ///< "": not given
  std::vector<std::string> ignored;  ///< fields that are not known here
  // Not of the body:
  /// Instead of content and calls, which have no order, the message of a whole answer has "deltas": those of a stream.
  bool in_order = false;
  std::string owner;          ///< HttpRequest::owner
  std::string prefix_domain;  ///< requests of different ones share no KV blocks
};

/// A body that another API's request was turned into (orchestrator/dialects).
struct OpenAiRequest {
  RequestJson body;
  bool chat = true;
  bool until_end = false;  ///< of a completion: no limit but the context, which its body cannot say
  bool in_order = false;   ///< as CompletionRequest::in_order
  std::vector<std::string> ignored = {};  ///< as CompletionRequest::ignored, by the other API's names
};

inline constexpr int kTopLogprobsMax = 20;
inline constexpr int64_t kChoicesMax = 128;
inline constexpr size_t kPromptsMax = 2048;
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr size_t kStopStringsMax = 64, kStopTokensMax = 128;
inline constexpr size_t kBadWordsMax = 1024, kBadWordBytesMax = 256;

class FieldReader;
/// The texts or token ids in the field `name`: a string, a list of token ids, or a list of either.
std::vector<PromptInput> read_prompts(FieldReader& f, const std::string& name);

/// `lenient`: fields that are not known are ignored instead of refused.
std::variant<CompletionRequest, ApiError> read_completion(const RequestJson& body, bool lenient = false);
std::variant<CompletionRequest, ApiError> read_chat(const RequestJson& body, bool lenient = false);

}  // namespace moestro::orchestrator

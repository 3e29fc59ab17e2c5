// Service's part of prompts: text becomes tokens, and what cannot fit is refused.

#include <algorithm>

#include "orchestrator/api/chat_prompt.h"
#include "orchestrator/api/request_rules.h"
#include "orchestrator/api/service.h"
#include "orchestrator/api/target_fields.h"

namespace moestro::orchestrator {

namespace {
/// What the field of a request is, for errors of its length.
std::string counted(std::string_view field) {
  return field == "decoder_prompt" ? "the beginning of the target" : "the prompt";
}

/// The field whose tokens the answer follows.
const char* field_of_prompt(const CompletionRequest& request, bool has_target) {
  return has_target ? "decoder_prompt" : request.chat ? "messages" : "prompt";
}
}  // namespace

std::variant<std::vector<TokenId>, ApiError> Service::encode(const std::string& text, bool add_special_tokens,
                                                             const char* field, const std::stop_token& stop) const {
  if (const auto error = check_text(text.size(), field)) return *error;
  auto ids = model_.tokenizer.encode(text, add_special_tokens, stop);
  if (!ids.is_ok()) return from_status(ids.status());
  return std::move(*ids);
}

std::variant<TokenizedPrompt, ApiError> Service::tokenize_prompt(const PromptInput& prompt, const char* field,
                                                                 const std::stop_token& stop) const {
  TokenizedPrompt result;
  if (const auto* text = std::get_if<std::string>(&prompt)) {
    auto ids = encode(*text, /*add_special_tokens=*/true, field, stop);
    if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    result.text = *text;
    result.ids = std::move(std::get<std::vector<TokenId>>(ids));
    if (result.ids.empty()) {  // an empty text: start from the token that begins texts, as training did
      const auto begin = model_.bos_token.empty() ? model_.tokenizer.id_of(model_.eos_token)
                                                  : model_.tokenizer.id_of(model_.bos_token);
      if (!begin)
        return bad_request("'" + std::string(field) + "' is empty, and this model has no token that begins a text",
                           field);
      result.ids.push_back(*begin);
    }
    return result;
  }
  result.ids = std::get<std::vector<TokenId>>(prompt);
  for (TokenId id : result.ids)
    if (id < 0 || id >= model_.vocab)
      return bad_request("'" + std::string(field) + "' has the token id " + std::to_string(id) +
                             "; this model's are 0 to " + std::to_string(model_.vocab - 1),
                         field);
  result.text = model_.tokenizer.decode(result.ids, /*skip_special=*/false);
  return result;
}

std::variant<TokenizedPrompt, ApiError> Service::apply_template(const CompletionRequest& request,
                                                                const std::stop_token& stop) const {
  if (const auto error = refuse_with_encoder(model_, "chats")) return *error;
  const bool tools = request.tool_choice != ToolChoice::kNone;
  const auto& chat_template = tools && model_.tool_template ? model_.tool_template : model_.chat_template;
  if (!chat_template) return bad_request(model_.chat_template_missing);
  RequestJson arguments = request.template_arguments;
  arguments["add_generation_prompt"] = request.add_generation_prompt;
  if (tools) arguments["tools"] = request.tools;
  add_reasoning_effort(model_, request, arguments);
  // A token that the model lacks is not defined: templates ask.
  for (const auto& [name, token] : {std::pair("bos_token", &model_.bos_token), {"eos_token", &model_.eos_token},
                                    {"pad_token", &model_.pad_token}, {"unk_token", &model_.unk_token}})
    if (!token->empty()) arguments[name] = *token;
  auto rendered = render_chat(*chat_template, request, arguments, model_.tool_form.get(), stop);
  if (auto* error = std::get_if<ApiError>(&rendered)) return std::move(*error);
  std::string& text = std::get<std::string>(rendered);
  if (const auto error = check_text(text.size(), "messages")) return *error;
  auto ids = model_.tokenizer.encode(text, /*add_special_tokens=*/false, stop);  // the template writes its own
  if (!ids.is_ok()) return from_status(ids.status());
  if (ids->empty()) return bad_request("'messages' makes an empty prompt", "messages");
  const bool open = model_.reasoning_style && begins_in_reasoning(*model_.reasoning_style, request, text);
  return TokenizedPrompt{std::move(text), std::move(*ids), open};
}

/// Leaves the last tokens of a prompt, as many as were asked for or, at most, fit.
void Service::truncate(TokenizedPrompt& prompt, const CompletionRequest& request) const {
  int64_t keep = request.truncate_prompt_tokens;
  if (keep < 0) keep = std::max<int64_t>(1, context() - request.max_tokens.value_or(1));
  const auto tokens = static_cast<int64_t>(prompt.ids.size());
  if (keep == 0 || tokens <= keep) return;
  prompt.ids.erase(prompt.ids.begin(), prompt.ids.end() - keep);
  prompt.text = model_.tokenizer.decode(prompt.ids, /*skip_special=*/false);
}

/// The start token, then what the request says, or else the forced token. A start token that the request has is not
/// doubled.
std::variant<TokenizedPrompt, ApiError> Service::target_begin(const CompletionRequest& request,
                                                              const std::stop_token& stop) const {
  TokenizedPrompt begin;
  begin.ids = {model_.target->start};
  if (!request.decoder_prompt && model_.target->forced) begin.ids.push_back(*model_.target->forced);
  begin.silent = begin.ids.size();
  if (!request.decoder_prompt) return begin;
  const char* const field = "decoder_prompt";
  std::vector<TokenId> said;
  if (const auto* text = std::get_if<std::string>(&*request.decoder_prompt)) {
    auto ids = encode(*text, /*add_special_tokens=*/false, field, stop);
    if (auto* error = std::get_if<ApiError>(&ids)) return std::move(*error);
    said = std::move(std::get<std::vector<TokenId>>(ids));
  } else {
    said = std::get<std::vector<TokenId>>(*request.decoder_prompt);
    if (auto error = check_ids(said, model_.vocab, field)) return std::move(*error);
  }
  const bool has_start = !said.empty() && said.front() == model_.target->start;
  begin.ids.insert(begin.ids.end(), said.begin() + (has_start ? 1 : 0), said.end());
  if (auto error = check_length(std::ssize(begin.ids), request)) return std::move(*error);
  begin.text = model_.tokenizer.decode(std::span(begin.ids).subspan(begin.silent), /*skip_special=*/false);
  return begin;
}

std::optional<ApiError> Service::check_sources(const std::vector<TokenizedPrompt>& prompts) const {
  const int64_t most = source_max();
  for (const TokenizedPrompt& p : prompts) {
    const int64_t tokens = std::ssize(*p.source);
    if (tokens <= most) continue;
    return exceeds_context("the prompt has " + std::to_string(tokens) + " tokens; a source is encoded in one step, and "
                           "workers take at most " + std::to_string(most) +
                           " (--step-tokens, and the model's context); shorten it",
                           "prompt", tokens, most);
  }
  return std::nullopt;
}

std::variant<std::vector<TokenizedPrompt>, ApiError> Service::tokenize_prompts(const CompletionRequest& request,
                                                                               const std::stop_token& stop) const {
  std::vector<TokenizedPrompt> prompts;
  TokenizedPrompt begin;
  if (model_.target) {  // each prompt gets a copy of the beginning: it is read once, and not for too many prompts
    if (const auto error = check_sequences(request.prompts.size(), request)) return *error;
    auto read = target_begin(request, stop);
    if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
    begin = std::move(std::get<TokenizedPrompt>(read));
  }
  const auto add = [&](std::variant<TokenizedPrompt, ApiError>&& p) -> std::optional<ApiError> {
    if (auto* error = std::get_if<ApiError>(&p)) return *error;
    prompts.push_back(std::move(std::get<TokenizedPrompt>(p)));
    truncate(prompts.back(), request);
    if (!model_.target) return std::nullopt;
    auto source = std::make_shared<const std::vector<TokenId>>(std::move(prompts.back().ids));
    prompts.back() = begin;
    prompts.back().source = std::move(source);
    return std::nullopt;
  };
  if (request.chat) {
    if (const auto error = add(apply_template(request, stop))) return *error;
  }
  for (const PromptInput& input : request.prompts)
    if (const auto error = add(tokenize_prompt(input, "prompt", stop))) return *error;
  return prompts;
}

/// What the workers say; with a window (--kv-window) that is more than the model's own context.
int64_t Service::context() const {
  const int64_t workers = control_.context_max();
  return workers > 0 ? workers : model_.context_max;
}

/// As context().
int64_t Service::source_max() const {
  const int64_t workers = control_.source_max();
  return workers > 0 ? workers : model_.context_max;
}

/// A text that could not fit if every token were the longest there is need not be tokenized to be refused. A normalizer
/// may shorten it: four times as much is let through.
std::optional<ApiError> Service::check_text(size_t bytes, const char* field) const {
  const auto bytes_max = static_cast<size_t>(4 * context() * model_.tokenizer.token_bytes_max());
  if (bytes <= bytes_max) return std::nullopt;
  ApiError e = bad_request(counted(field) + " has " + std::to_string(bytes) + " bytes, more than the context of " +
                               std::to_string(context()) + " tokens can hold",
                           field);
  e.type = "exceed_context_size_error";
  return e;
}

std::optional<ApiError> Service::check_length(int64_t tokens, const CompletionRequest& request) const {
  const int64_t context = this->context();
  const bool scores_only = request.max_tokens == 0;
  if (tokens < context || (scores_only && tokens == context)) return std::nullopt;
  const char* const field = field_of_prompt(request, has_encoder());
  return exceeds_context(counted(field) + " has " + std::to_string(tokens) + " tokens, more than the context of " +
                             std::to_string(context) + " leaves room for",
                         field, tokens, context);
}

std::optional<ApiError> Service::check_sequences(size_t prompts, const CompletionRequest& request) const {
  const size_t sequences = prompts * static_cast<size_t>(request.best_of);
  const size_t most = control_.sequences_max(request.owner);
  if (sequences <= most) return std::nullopt;
  return bad_request("'prompt' and " + std::string(request.best_of > request.n ? "'best_of'" : "'n'") + " make " +
                         std::to_string(sequences) + " sequences; at most " + std::to_string(most) +
                         " of one client may wait at once (orchestrator.queue_max); send several requests",
                     request.chat ? "messages" : "prompt");
}

/// As the scheduler counts: what comes of a source stays in the KV cache beside its target. Where workers differ, the
/// scheduler has the last word.
std::optional<ApiError> Service::check_memories(const CompletionRequest& request,
                                                const std::vector<TokenizedPrompt>& prompts) const {
  const KvRoom room = control_.kv_room();
  if (room.blocks == 0) return std::nullopt;
  const int64_t longest = std::max(context(), model_.context_max);  // where an answer is cut
  for (const TokenizedPrompt& p : prompts) {
    const int64_t source = std::ssize(*p.source), begin = std::ssize(p.ids);
    const int64_t target = std::min(begin + request.max_tokens.value_or(1), longest);
    if (room.needed(source) + room.needed(target) <= room.blocks) continue;
    const std::string advice = request.max_tokens ? "lower max_tokens, or start" : "shorten the prompt, or start";
    return exceeds_context("the source has " + std::to_string(source) + " tokens, and its target up to " +
                               std::to_string(target) + "; a worker's KV cache holds " + std::to_string(room.tokens()) +
                               ", in blocks of " + std::to_string(room.block_tokens) + "; " + advice +
                               " workers with more --kv-tokens",
                           request.max_tokens ? "max_tokens" : "prompt", source + begin, room.tokens());
  }
  return std::nullopt;
}

std::optional<ApiError> Service::check_lengths(const CompletionRequest& request,
                                               const std::vector<TokenizedPrompt>& prompts) const {
  const int64_t context = this->context();
  if (model_.target)
    if (const auto error = check_sources(prompts)) return error;
  for (const TokenizedPrompt& p : prompts)
    if (const auto error = check_length(std::ssize(p.ids), request)) return error;
  const int64_t longest = std::max(
      context,
      model_.context_max);  // beyond it an answer is cut (completion.cc); below it, it is as asked for or not at all
  for (const TokenizedPrompt& p : prompts) {
    const int64_t tokens = std::ssize(p.ids);
    if (!request.max_tokens || std::min(tokens + *request.max_tokens, longest) <= context) continue;
    return exceeds_context(
        counted(field_of_prompt(request, has_encoder())) + " has " + std::to_string(tokens) +
            " tokens and max_tokens is " + std::to_string(*request.max_tokens) + ", together more than the " +
            std::to_string(context) +
            " that a worker's KV cache or context holds; lower max_tokens, or start workers with more --kv-tokens",
        "max_tokens", tokens, context);
  }
  if (model_.target)
    if (const auto error = check_memories(request, prompts)) return error;
  if (const auto error = check_sequences(prompts.size(), request)) return error;
  if (request.max_tokens && *request.max_tokens > context)
    return bad_request("'max_tokens' is " + std::to_string(*request.max_tokens) + "; the model's context is " +
                           std::to_string(context),
                       "max_tokens");
  return std::nullopt;
}

}  // namespace moestro::orchestrator

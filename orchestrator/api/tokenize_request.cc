#include "orchestrator/api/tokenize_request.h"

#include "common/utf8.h"
#include "orchestrator/api/field_reader.h"

namespace moestro::orchestrator {

using json = RequestJson;

namespace {

/// The fields of a chat that say what its prompt is, for read_chat to check; null if there are no messages.
json chat_of(FieldReader& f) {
  json chat = json::object();
  for (const char* name : {"messages", "tools", "chat_template_kwargs", "add_generation_prompt",
                           "continue_final_message"})
    if (const json* value = f.field(name)) chat[name] = *value;
  if (chat.contains("messages")) return chat;
  if (!chat.empty()) f.fail(bad_request("'" + chat.begin().key() + "' needs 'messages'", chat.begin().key()));
  return nullptr;
}

}  // namespace

std::variant<TokenizeRequest, ApiError> read_tokenize(const json& body, bool lenient) {
  TokenizeRequest r;
  FieldReader f(body, lenient ? &r.ignored : nullptr);
  f.ignore("model");
  const auto content = f.string("content"), prompt = f.string("prompt");
  const auto special = f.boolean("add_special"), special_tokens = f.boolean("add_special_tokens");
  r.chat = chat_of(f);
  r.with_pieces = f.boolean("with_pieces").value_or(false);
  r.return_token_strs = f.boolean("return_token_strs").value_or(false);
  f.only("parse_special", true, "special tokens in the text are always recognised; leave it out");
  f.settle_unknown();
  if (content && prompt) f.fail(bad_request("'content' and 'prompt' are two names of one field; give one", "prompt"));
  if (special && special_tokens)
    f.fail(bad_request("'add_special' and 'add_special_tokens' are two names of one field; give one",
                       "add_special_tokens"));
  const bool text = content || prompt, chat = !r.chat.is_null();
  if (chat && text) f.fail(bad_request("'messages' and a text are both given; give one", "messages"));
  if (chat && special.value_or(special_tokens.value_or(false)))
    f.fail(not_supported(special ? "add_special" : "add_special_tokens",
                         "not with 'messages': the chat template writes the special tokens"));
  if (!chat && !text)
    f.fail(bad_request("'content' (or 'prompt', or 'messages') is missing: what to tokenize", "content"));
  if (f.error()) return *f.error();
  if (text) r.text = content ? *content : *prompt;
  r.add_special_tokens = special.value_or(special_tokens.value_or(prompt.has_value()));
  return r;
}

nlohmann::json tokenize_answer(const TokenizeRequest& request, const std::vector<TokenId>& ids,
                               const Tokenizer& tokenizer) {
  nlohmann::json tokens = nlohmann::json::array(), spelled = nlohmann::json::array();
  for (const TokenId id : ids) {
    if (request.return_token_strs) spelled.push_back(tokenizer.token(id));
    if (!request.with_pieces) {
      tokens.push_back(id);
      continue;
    }
    const std::string bytes = tokenizer.token_bytes(id);
    nlohmann::json piece = bytes;
    if (find_invalid_utf8(bytes) < bytes.size()) piece = std::vector<uint8_t>(bytes.begin(), bytes.end());
    tokens.push_back({{"id", id}, {"piece", std::move(piece)}});
  }
  nlohmann::json answer{{"tokens", std::move(tokens)}, {"count", ids.size()}};
  if (request.return_token_strs) answer["token_strs"] = std::move(spelled);
  return answer;
}

std::variant<std::vector<TokenId>, ApiError> read_detokenize(const json& body, int64_t vocab,
                                                             std::vector<std::string>* ignored) {
  FieldReader f(body, ignored);
  f.ignore("model");
  const json* tokens = f.field("tokens");
  f.settle_unknown();
  if (f.error()) return *f.error();
  const auto wrong = [&] {
    return bad_request("'tokens' must be a list of token ids, 0 to " + std::to_string(vocab - 1), "tokens");
  };
  if (tokens == nullptr || !tokens->is_array()) return wrong();
  std::vector<TokenId> ids;
  for (const json& id : *tokens) {
    if (!id.is_number_integer() || id < 0 || id >= vocab) return wrong();
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

}  // namespace moestro::orchestrator

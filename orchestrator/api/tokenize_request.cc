#include "orchestrator/api/tokenize_request.h"

#include "orchestrator/api/field_reader.h"

namespace moestro::orchestrator {

using json = RequestJson;

std::variant<TokenizeRequest, ApiError> read_tokenize(const json& body) {
  FieldReader f(body);
  f.ignore("model");
  const auto content = f.string("content"), prompt = f.string("prompt");
  const auto special = f.boolean("add_special"), special_tokens = f.boolean("add_special_tokens");
  f.only("parse_special", true, "special tokens in the text are always recognised; leave it out");
  f.only("with_pieces", false, "not supported; leave it out");
  f.only("return_token_strs", false, "not supported; leave it out");
  f.refuse_unknown();
  if (content && prompt) f.fail(bad_request("'content' and 'prompt' are two names of one field; give one", "prompt"));
  if (special && special_tokens)
    f.fail(bad_request("'add_special' and 'add_special_tokens' are two names of one field; give one",
                       "add_special_tokens"));
  if (!content && !prompt) f.fail(bad_request("'content' (or 'prompt') is missing: the text to tokenize", "content"));
  if (f.error()) return *f.error();
  return TokenizeRequest{content ? *content : *prompt, special.value_or(special_tokens.value_or(prompt.has_value()))};
}

std::variant<std::vector<TokenId>, ApiError> read_detokenize(const json& body, int64_t vocab) {
  FieldReader f(body);
  f.ignore("model");
  const json* tokens = f.field("tokens");
  f.refuse_unknown();
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

#include "orchestrator/api/target_fields.h"

#include <string>

namespace moestro::orchestrator {

std::optional<ApiError> refuse_with_encoder(const ServedModel& model, const char* what) {
  if (!model.target) return std::nullopt;
  return bad_request("'" + model.name + "' is an encoder-decoder model, and has no " + what +
                     "; use /v1/completions: 'prompt' is the source");
}

std::optional<ApiError> check_target_fields(const CompletionRequest& request, const ServedModel& model) {
  if (!model.target) {
    if (!request.decoder_prompt) return std::nullopt;
    return not_supported("decoder_prompt", "only of encoder-decoder models, and '" + model.name +
                                               "' has no encoder; put it at the end of 'prompt'");
  }
  if (request.chat) return refuse_with_encoder(model, "chats");
  const char* const why = "not with an encoder-decoder model, whose 'prompt' is a source; leave it out";
  if (request.echo) return not_supported("echo", why);
  if (request.prompt_logprobs >= 0) return not_supported("prompt_logprobs", why);
  if (request.truncate_prompt_tokens != 0) return not_supported("truncate_prompt_tokens", why);
  return std::nullopt;
}

}  // namespace moestro::orchestrator

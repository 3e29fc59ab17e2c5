// Service's part of /v1/embeddings: from the body to sequences.

#include "orchestrator/api/service.h"
#include "orchestrator/api/target_fields.h"

namespace moestro::orchestrator {

void Service::embed(const Call& call) {
  if (const auto error = not_ready()) return refuse_completion(call.exchange, *error);
  read_body(call, [this](const HttpRequest& request, const std::stop_token& stop) -> ReadingPool::Outcome {
    auto read = std::make_shared<std::variant<ReadEmbedding, ApiError>>(read_embedding_of(request, stop));
    return [this, read](const std::shared_ptr<Exchange>& exchange) {
      if (const auto* error = std::get_if<ApiError>(read.get())) return refuse_completion(exchange, *error);
      std::make_shared<Embedding>(context_, std::move(std::get<ReadEmbedding>(*read)), exchange)->start();
    };
  });
}

std::variant<ReadEmbedding, ApiError> Service::read_embedding_of(const HttpRequest& http,
                                                                 const std::stop_token& stop) const {
  const auto body = parse_body(http.body);
  if (const auto* error = std::get_if<ApiError>(&body)) return *error;
  auto request = read_embedding(std::get<RequestJson>(body), options_.lenient);
  if (const auto* error = std::get_if<ApiError>(&request)) return *error;
  ReadEmbedding read{std::move(std::get<EmbeddingRequest>(request)), {}};
  EmbeddingRequest& r = read.request;
  if (r.model && !model_.is_called(*r.model)) return unknown_model(*r.model);
  if (const auto error = refuse_with_encoder(model_, "embeddings")) return *error;
  if (r.dimensions && *r.dimensions != model_.hidden)
    return not_supported("dimensions", "this model's embeddings have " + std::to_string(model_.hidden) +
                                           " values and cannot be cut; leave it out");
  if (r.inputs.size() > control_.sequences_max(http.owner))
    return bad_request("'input' has " + std::to_string(r.inputs.size()) + " entries; at most " +
                           std::to_string(control_.sequences_max(http.owner)) +
                           " of one client may wait at once (orchestrator.queue_max); send several requests",
                       "input");
  r.owner = http.owner;
  r.prefix_domain = prefix_domain(http, r.cache_salt, /*low_share_max=*/0);
  const int64_t context = this->context();
  for (const PromptInput& input : r.inputs) {
    auto prompt = tokenize_prompt(input, "input", stop);
    if (const auto* error = std::get_if<ApiError>(&prompt)) return *error;
    std::vector<TokenId>& ids = std::get<TokenizedPrompt>(prompt).ids;
    if (const auto tokens = static_cast<int64_t>(ids.size()); tokens > context)
      return exceeds_context(
          "an input has " + std::to_string(tokens) + " tokens, more than the context of " + std::to_string(context),
          "input", tokens, context);
    read.inputs.push_back(std::move(ids));
  }
  r.inputs.clear();
  return read;
}

}  // namespace moestro::orchestrator

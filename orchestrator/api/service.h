#pragma once
// The routes of the API. Lives on the server's thread.

#include <functional>
#include <memory>
#include <random>
#include <string>

#include "orchestrator/api/completion.h"

namespace moestro::orchestrator {

class Service {
 public:
  Service(ServedModel model, ControlPlane& control, std::function<void(std::function<void()>)> post);

  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

 private:
  void complete(const HttpRequest& request, bool chat, const std::shared_ptr<Exchange>& exchange);
  std::variant<std::vector<TokenizedPrompt>, ApiError> tokenize_prompts(const CompletionRequest& request) const;
  std::variant<TokenizedPrompt, ApiError> tokenize_prompt(const PromptInput& prompt) const;
  std::variant<TokenizedPrompt, ApiError> apply_template(const CompletionRequest& request) const;
  std::optional<ApiError> check_lengths(const CompletionRequest& request, const std::vector<TokenizedPrompt>& prompts) const;
  std::optional<ApiError> not_ready() const;

  void health(const std::shared_ptr<Exchange>& exchange) const;
  void models(const std::shared_ptr<Exchange>& exchange) const;
  void tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) const;
  void detokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) const;
  void status(const std::shared_ptr<Exchange>& exchange) const;
  static void refuse(const std::shared_ptr<Exchange>& exchange, const ApiError& error);

  const ServedModel model_;
  ControlPlane& control_;
  RequestMetrics metrics_;
  CompletionContext context_;
  std::mt19937_64 random_{std::random_device{}()};
};

}  // namespace moestro::orchestrator

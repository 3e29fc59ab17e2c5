#pragma once
// The routes of the API. Lives on the server's thread.

#include <functional>
#include <memory>
#include <random>
#include <string>

#include "orchestrator/api/background.h"
#include "orchestrator/api/completion.h"
#include "orchestrator/api/constraints.h"
#include "orchestrator/api/extension.h"
#include "orchestrator/store_watch/store_watch.h"

namespace moestro::orchestrator {

class Service {
 public:
  Service(ServedModel model, ControlPlane& control, std::function<void(std::function<void()>)> post);

  /// Before anything is handled: what says how the store is. It outlives this.
  void watch_store(const StoreWatch& watch) { store_ = &watch; }
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  /// Serves more paths from now on. Outlives this; null: none.
  void extend(Extension* extension) { extension_ = extension; }

 private:
  struct Call {
    const HttpRequest& request;
    const std::shared_ptr<Exchange>& exchange;
  };
  struct Route {
    std::string method;
    std::function<void(const Call&)> act;
  };

  std::optional<Route> route(const std::string& path);
  /// A completion's body, read and tokenized.
  struct ReadRequest {
    CompletionRequest request;
    std::vector<TokenizedPrompt> prompts;
    Constraint constraint;
  };

  void complete(const Call& call, bool chat);
  /// From any thread: looks at nothing that changes but the control plane's figures.
  std::variant<ReadRequest, ApiError> read_request(const HttpRequest& http, bool chat) const;
  void begin(const std::shared_ptr<Exchange>& exchange, std::variant<ReadRequest, ApiError> read, bool chat);
  std::optional<ApiError> check_text(const CompletionRequest& request) const;
  /// The longest sequence served: the model's context, or what the workers can hold.
  int64_t context() const;
  std::variant<std::vector<TokenizedPrompt>, ApiError> tokenize_prompts(const CompletionRequest& request) const;
  std::variant<TokenizedPrompt, ApiError> tokenize_prompt(const PromptInput& prompt) const;
  std::variant<TokenizedPrompt, ApiError> apply_template(const CompletionRequest& request) const;
  std::optional<ApiError> check_lengths(const CompletionRequest& request, const std::vector<TokenizedPrompt>& prompts) const;
  std::optional<ApiError> not_ready() const;

  void health(const Call& call) const;
  void metrics(const Call& call) const;
  void models(const Call& call) const;
  void model(const Call& call, const std::string& id) const;
  void tokenize(const Call& call) const;
  void detokenize(const Call& call) const;
  void status(const Call& call) const;
  void page(const Call& call) const;
  nlohmann::json model_entry() const;
  ApiError unknown_model(const std::string& name) const;
  static void refuse(const std::shared_ptr<Exchange>& exchange, const ApiError& error, Headers headers = {});

  const ServedModel model_;
  const Constraints constraints_{model_};
  Extension* extension_ = nullptr;
  ControlPlane& control_;
  const StoreWatch* store_ = nullptr;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  RequestMetrics metrics_;
  CompletionContext context_;
  std::mt19937_64 random_{std::random_device{}()};
  Background large_bodies_;  ///< last: its thread uses the others
};

}  // namespace moestro::orchestrator

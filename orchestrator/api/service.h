#pragma once
// The routes of the API. Lives on the server's thread.

#include <functional>
#include <memory>
#include <random>
#include <string>

#include "orchestrator/api/completion.h"
#include "orchestrator/api/constraints.h"
#include "orchestrator/api/embedding.h"
#include "orchestrator/api/extension.h"
#include "orchestrator/api/reading_pool.h"
#include "orchestrator/api/status_history.h"
#include "orchestrator/api/status_report.h"
#include "orchestrator/store_watch/store_watch.h"

namespace moestro::orchestrator {

struct ServiceOptions {
  bool share_prefixes = false;  ///< projects find what others have in the KV cache, and can tell that they do
  bool lenient = false;         ///< fields that are not known are ignored, and the answer's header says so
  std::optional<double> mixed_warn_share = {};  ///< answers with a larger share of low copies say it in a header
  std::optional<Forecast> forecast = {};  ///< nullopt: there is none
};

class Service {
 public:
  Service(ServedModel model, ControlPlane& control, std::function<void(std::function<void()>)> post,
          ServiceOptions options = {});

  /// Before anything is handled: what says how the store is. It outlives this.
  void watch_store(const StoreWatch& watch) { store_ = &watch; }
  void handle(HttpRequest request, std::shared_ptr<Exchange> exchange);
  /// To be called once a second: what the status is now goes into its history.
  void sample() { history_.add(status_report(sources(), metrics_, nlohmann::json::object())); }
  /// All routes but those of extensions.
  static std::vector<ServedRoute> routes();
  /// Serves more paths from now on. They outlive this, or forget_extensions().
  void extend(Extension& extension) { extensions_.push_back(&extension); }
  void forget_extensions() { extensions_.clear(); }
  /// When the server's thread has ended: ends the threads that read bodies. They use the control plane and post.
  void end_reading() { reading_.end(); }

  // For extensions whose requests become completions.

  /// Larger bodies are read and tokenized away from the server's thread: this many bytes take it a few milliseconds.
  static constexpr size_t kInlineBytes = 16 << 10;
  struct Call {
    HttpRequest& request;
    const std::shared_ptr<Exchange>& exchange;
    size_t more_bytes = 0;  ///< that are to be read beside the body
  };
  /// Work that reads a request's body.
  using Read = std::function<ReadingPool::Outcome(const HttpRequest&, const std::stop_token&)>;
  /// Does it here and now where the body is small, and else in the pool.
  void read_body(const Call& call, Read read);
  /// Makes OpenAI's body of a request; from any thread.
  using Make = std::function<std::variant<OpenAiRequest, ApiError>(const HttpRequest&, const std::stop_token&)>;
  /// Answers as /v1/completions or /v1/chat/completions would answer that body.
  void complete(const Call& call, Make make);
  /// Answers {"prompt_tokens": N} for it. The prompt may be longer than the context.
  void count_tokens(const Call& call, Make make);
  /// Refuses a request as one of these two would, and counts it.
  void refuse_completion(const std::shared_ptr<Exchange>& exchange, const ApiError& error);
  /// The tokens of a prompt, or of a part of one. From any thread.
  std::variant<std::vector<TokenId>, ApiError> encode(const std::string& text, bool add_special_tokens,
                                                      const char* field, const std::stop_token& stop) const;
  std::string decode(std::span<const TokenId> ids) const { return model_.tokenizer.decode(ids, false); }
  bool has_encoder() const { return model_.target.has_value(); }
  ReadingPool& pool() { return reading_; }

 private:
  // routes.cc
  struct Served {
    std::string method;
    std::vector<std::string> paths;  ///< as in ServedRoute
    void (*act)(Service&, const Call&, const std::string& rest);
  };
  static const std::vector<Served>& served();
  /// What serves a path; null if there is no such path. `rest`: what stands where its route has "{...}".
  static const Served* find_route(const std::string& path, std::string& rest);
  /// A completion's body, read and tokenized.
  struct ReadRequest {
    CompletionRequest request;
    std::vector<TokenizedPrompt> prompts;
    Constraint constraint;
  };

  struct TokenizedRequest {
    CompletionRequest request;
    std::vector<TokenizedPrompt> prompts;
  };

  void complete_own(const Call& call, bool chat);
  void begin(const std::shared_ptr<Exchange>& exchange, std::variant<ReadRequest, ApiError> read);
  // embedding_route.cc
  void embed(const Call& call);
  std::variant<ReadEmbedding, ApiError> read_embedding_of(const HttpRequest& http, const std::stop_token& stop) const;

  // From any thread: they look at nothing that changes but the control plane's figures.
  std::variant<TokenizedRequest, ApiError> tokenize_request(const HttpRequest& http, const Make& make,
                                                            const std::stop_token& stop) const;
  std::variant<ReadRequest, ApiError> read_request(const HttpRequest& http, const Make& make,
                                                   const std::stop_token& stop) const;
  std::string prefix_domain(const HttpRequest& http, const std::string& cache_salt, double low_share_max) const;
  std::optional<ApiError> check_text(size_t bytes, const char* field) const;
  /// The longest sequence served: the model's context, or what the workers can hold.
  int64_t context() const;
  /// The longest source of an encoder-decoder model.
  int64_t source_max() const;
  std::variant<std::vector<TokenizedPrompt>, ApiError> tokenize_prompts(const CompletionRequest& request,
                                                                        const std::stop_token& stop) const;
  /// `field`: of the body, for errors.
  std::variant<TokenizedPrompt, ApiError> tokenize_prompt(const PromptInput& prompt, const char* field,
                                                          const std::stop_token& stop) const;
  std::variant<TokenizedPrompt, ApiError> apply_template(const CompletionRequest& request,
                                                         const std::stop_token& stop) const;
  void truncate(TokenizedPrompt& prompt, const CompletionRequest& request) const;
  /// What all targets of a request begin with; without a source.
  std::variant<TokenizedPrompt, ApiError> target_begin(const CompletionRequest& request,
                                                       const std::stop_token& stop) const;
  /// Whether so many tokens leave room for an answer.
  std::optional<ApiError> check_length(int64_t tokens, const CompletionRequest& request) const;
  /// Whether sources and targets fit into a worker's KV cache together.
  std::optional<ApiError> check_memories(const CompletionRequest& request,
                                         const std::vector<TokenizedPrompt>& prompts) const;
  /// Whether so many prompts make no more sequences than one client may have.
  std::optional<ApiError> check_sequences(size_t prompts, const CompletionRequest& request) const;
  std::optional<ApiError> check_sources(const std::vector<TokenizedPrompt>& prompts) const;
  struct TextAnswer {
    std::string body;
    std::vector<std::string> ignored;  ///< fields of the request
  };
  using TextOrError = std::variant<TextAnswer, ApiError>;
  TextOrError tokens_of(const HttpRequest& http, const std::stop_token& stop) const;
  TextOrError prompt_of(const HttpRequest& http, const std::stop_token& stop) const;
  TextOrError text_of(const HttpRequest& http, const std::stop_token& stop) const;
  std::optional<ApiError> check_lengths(const CompletionRequest& request,
                                        const std::vector<TokenizedPrompt>& prompts) const;
  std::optional<ApiError> not_ready() const;

  void health(const Call& call) const;
  void metrics(const Call& call) const;
  void models(const Call& call) const;
  void openapi(const Call& call) const;
  void model(const Call& call, const std::string& id) const;
  void version(const Call& call) const;
  void load(const Call& call) const;
  StatusSources sources() const;
  void status(const Call& call) const;
  void page(const Call& call) const;
  void answer_text(const Call& call, TextOrError (Service::*read)(const HttpRequest&, const std::stop_token&) const);
  nlohmann::json model_entry(const std::string& id) const;
  ApiError unknown_model(const std::string& name) const;

  const ServedModel model_;
  const ServiceOptions options_;
  const Constraints constraints_{model_};
  std::vector<Extension*> extensions_;
  ControlPlane& control_;
  const StoreWatch* store_ = nullptr;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  RequestMetrics metrics_;
  StatusHistory history_;
  CompletionContext context_;
  std::mt19937_64 random_{std::random_device{}()};
  ReadingPool reading_;  ///< last: its threads use the others
};

}  // namespace moestro::orchestrator

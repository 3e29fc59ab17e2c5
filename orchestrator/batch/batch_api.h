#pragma once
// /v1/files and /v1/batches. Routes run on the server's thread, the state is read on the runner's thread, and files are
// read and written on a third.

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "orchestrator/api/background.h"
#include "orchestrator/api/extension.h"
#include "orchestrator/batch/batch_runner.h"
#include "orchestrator/batch/batch_shapes.h"
#include "orchestrator/batch/upload.h"

namespace moestro::orchestrator {

class BatchApi final : public Extension {
 public:
  /// `runner` and the target of `post` outlive it.
  BatchApi(BatchRunner& runner, std::string model, BatchRunner::Post post);

  bool handle(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) override;
  /// What handle() takes.
  static std::vector<ServedRoute> routes();
  std::string metrics() const override;
  nlohmann::json status(const HttpRequest& request) const override;
  /// For HttpServer::take_uploads.
  std::shared_ptr<BodySink> sink_for(const HttpRequest& head, const std::string& content_type);

 private:
  using ExchangePtr = std::shared_ptr<Exchange>;
  /// The project whose files and batches a request sees; nullopt: all.
  using Scope = std::optional<std::string>;
  /// Asks the state on the runner's thread, and says the answer on the server's.
  template <typename T>
  void ask(const ExchangePtr& exchange, std::function<T()> question,
           std::function<void(const ExchangePtr&, const T&)> say);
  void answer(const ExchangePtr& exchange, std::function<std::variant<nlohmann::json, ApiError>()> question);
  static void say(const ExchangePtr& exchange, const std::variant<nlohmann::json, ApiError>& what);
  void handle_files(HttpRequest& request, const ExchangePtr& exchange, const std::string& rest);
  void handle_batches(HttpRequest& request, const ExchangePtr& exchange, const std::string& rest);

  void upload(const HttpRequest& request, const ExchangePtr& exchange);
  void list_files(const HttpRequest& request, const ExchangePtr& exchange);
  void content(const ExchangePtr& exchange, const std::string& id, const Scope& scope);
  std::variant<nlohmann::json, ApiError> remove_file(const std::string& id, const Scope& scope);
  /// Runner's thread. nullopt: there is none, or it belongs to another project; the answer is the same.
  Result<std::optional<FileRecord>> file(const std::string& id, const Scope& scope) const;
  Result<std::optional<BatchRecord>> batch(const std::string& id, const Scope& scope) const;
  void create_batch(const HttpRequest& request, const ExchangePtr& exchange);
  void list_batches(const HttpRequest& request, const ExchangePtr& exchange);

  BatchRunner& runner_;
  const std::string model_;
  const BatchRunner::Post post_;
  /// Uploads in progress. The last ones end with the server, when this is gone.
  const std::shared_ptr<std::atomic<int>> uploads_ = std::make_shared<std::atomic<int>>(0);
  Background disk_;  ///< last: its thread uses the others
};

}  // namespace moestro::orchestrator

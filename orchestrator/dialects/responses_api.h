#pragma once
// /v1/responses. Routes on the server's thread; the state is asked on the batch runner's.

#include <functional>
#include <nlohmann/json_fwd.hpp>

#include "orchestrator/api/extension.h"
#include "orchestrator/api/service.h"
#include "orchestrator/batch/batch_runner.h"
#include "orchestrator/dialects/responses_request.h"
#include "orchestrator/dialects/translated_exchange.h"

namespace moestro::orchestrator {

struct ResponsesOptions {
  bool lenient = false;
  uint64_t kept_bytes_max = 256ull << 20;  ///< of all responses in the state; 0: none is kept
  int64_t kept_seconds = 30 * 86400;
};

class ResponsesApi final : public Extension {
 public:
  /// Both outlive it.
  ResponsesApi(Service& service, BatchRunner& runner, ResponsesOptions options)
      : service_(service), runner_(runner), options_(options) {}

  bool handle(HttpRequest& request, const std::shared_ptr<Exchange>& exchange) override;
  /// What it serves.
  static std::vector<ServedRoute> routes();
  std::string metrics() const override { return ""; }
  nlohmann::json status(const HttpRequest&) const override;

 private:
  using ExchangePtr = std::shared_ptr<Exchange>;
  using RequestPtr = std::shared_ptr<ResponsesRequest>;
  /// The project whose responses a request sees; nothing: all.
  using Scope = std::optional<std::string>;
  using Known = std::variant<ResponseRecord, ApiError>;

  void create(HttpRequest& request, const ExchangePtr& exchange);
  void recall(HttpRequest head, const RequestPtr& read, const ExchangePtr& exchange, TranslatedExchange::Slot slot);
  void go_on(HttpRequest head, const RequestPtr& read, std::string before, const ExchangePtr& exchange,
             TranslatedExchange::Slot slot);
  /// For ResponsesFrame::keep.
  std::function<void(RequestJson, std::function<void(bool)>)> keeper(const std::string& id, const std::string& owner);
  /// Looks for the response, and calls `then` with it on the server's thread.
  void find(const std::string& id, const Scope& scope, const ExchangePtr& exchange, std::function<void(Known)> then);
  /// Answers with a part of the record {"response", "input"}.
  using Part = std::function<std::string(const RequestJson& record)>;
  void show(const HttpRequest& request, const std::string& id, const ExchangePtr& exchange, Part part);
  void list_input(const HttpRequest& request, const std::string& id, const ExchangePtr& exchange);
  void remove(const std::string& id, const Scope& scope, const ExchangePtr& exchange);

  Service& service_;
  BatchRunner& runner_;
  const ResponsesOptions options_;
};

}  // namespace moestro::orchestrator

#pragma once
// Reads requests from a connection one after another: first the head, then the body, within the budgets. Coroutines of
// the server's thread.

#include <boost/asio/awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "orchestrator/http/byte_budget.h"
#include "orchestrator/http/exchange.h"
#include "orchestrator/http/refusal.h"
#include "orchestrator/http/server.h"
#include "orchestrator/http/wire.h"

namespace moestro::orchestrator {

/// The memory that all connections together may use for unfinished requests, and for bodies until their handlers
/// release them.
struct ReadBudgets {
  explicit ReadBudgets(const HttpOptions& options);
  const std::shared_ptr<ByteBudget> heads, bodies;
};

class RequestReader {
 public:
  struct Head {
    HttpRequest request;  ///< without its body
    std::string content_type, expect;
    bool http_1_0 = false, keep_alive = false, is_head = false, has_body = false;
  };

  RequestReader(Wire& wire, const HttpOptions& options, const ReadBudgets& budgets);
  ~RequestReader();

  /// Reads the next head. Bytes that were already read are used first.
  boost::asio::awaitable<std::optional<Refusal>> read_head(Head& head);
  /// Checks the body size in the head before anything of the body is read.
  std::optional<Refusal> check_body(bool into_sink) const;
  /// Reads the body into memory. The request holds its part of the budget.
  boost::asio::awaitable<std::optional<Refusal>> read_body(HttpRequest& request);
  /// Reads the body into `sink`, piece by piece. `whole`: it was read to its end. It may be false without a refusal, if
  /// the sink wanted no more.
  boost::asio::awaitable<std::optional<Refusal>> read_body(BodySink& sink, bool& whole);

  /// Frees everything that was read. Nothing more is read.
  void forget();
  /// Bytes after the request, which read_head() will take.
  boost::beast::flat_buffer& unread() { return unread_; }

 private:
  struct Parsing;
  boost::asio::awaitable<std::optional<Refusal>> more(size_t room);
  Refusal refusal_of(const boost::system::error_code& error, uint64_t body_bytes_max) const;
  boost::asio::awaitable<std::optional<Refusal>> read_piece(size_t bytes, uint64_t body_bytes_max);

  Wire& wire_;
  const HttpOptions& options_;
  const ReadBudgets& budgets_;
  boost::beast::flat_buffer unread_;
  std::unique_ptr<Parsing> parsing_;
};

}  // namespace moestro::orchestrator

#pragma once
// One request after another from a connection: first its head, then its body, as far as the budgets allow. Coroutines
// of the server's thread.

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

/// What all connections together may hold of requests that are not read to their end, and of bodies until their
/// handlers let go of them.
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

  /// The next head. Nothing is asked of the wire for what was read already.
  boost::asio::awaitable<std::optional<Refusal>> read_head(Head& head);
  /// Whether a body of the size that its head gives is too large, before anything of it is asked for.
  std::optional<Refusal> check_body(bool into_sink) const;
  /// The body behind it, in memory. The request holds its place in the budget.
  boost::asio::awaitable<std::optional<Refusal>> read_body(HttpRequest& request);
  /// The body into `sink`, piece by piece. `whole`: it was read to its end; without a refusal it may be false, where
  /// the sink wants no more.
  boost::asio::awaitable<std::optional<Refusal>> read_body(BodySink& sink, bool& whole);

  /// Lets go of all that was read: nothing more is.
  void forget();
  /// Bytes behind the request, which read_head() will take.
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

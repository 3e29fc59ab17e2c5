#include "orchestrator/http/server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/log.h"
#include "orchestrator/http/said.h"
#include "orchestrator/http/session.h"
#include "orchestrator/http/tls_identity.h"

namespace moestro::orchestrator {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

class HttpServer::Impl {
 public:
  Impl(HttpOptions options, Handler handler, std::function<std::string(int, const std::string&)> error_body)
      : acceptor_(io_) {
    shared_.options = std::move(options);
    shared_.handler = std::move(handler);
    shared_.error_body = std::move(error_body);
    shared_.gate_open = [this] { return acceptor_.is_open(); };
  }

  Status open();
  void run() {
    asio::co_spawn(io_, accept(), asio::detached);
    const auto keep = asio::make_work_guard(io_);
    io_.run();
  }
  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void post(std::function<void()> work) { asio::post(io_, std::move(work)); }
  void close_gate() {
    asio::post(io_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
  }
  bool wait_answered(std::chrono::milliseconds limit) { return shared_.answering.wait_none(limit); }
  void stop() { io_.stop(); }
  void take_uploads(SinkFor sink_for) { shared_.sink_for = std::move(sink_for); }

 private:
  awaitable<void> accept();
  awaitable<void> serve(tcp::socket socket);

  SessionContext shared_;
  std::unique_ptr<TlsIdentity> identity_;  ///< null: plain HTTP
  uint32_t connections_ = 0;
  // Last, so that coroutines that io_ ends when it goes still find the rest.
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
};

Status HttpServer::Impl::open() {
  const HttpOptions& options = shared_.options;
  if (options.tls) {
    MOESTRO_ASSIGN_OR_RETURN(identity_, TlsIdentity::load(*options.tls));
  }
  error_code error;
  const std::string where = options.host + ":" + std::to_string(options.port);
  const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error) return invalid_argument("--http " + where + ": '" + options.host + "' is not an IP address");
  const tcp::endpoint endpoint(address, options.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return invalid_argument("cannot listen on " + where + ": " + error.message() + "; choose another with --http");
  return Status::ok();
}

awaitable<void> HttpServer::Impl::accept() {
  while (acceptor_.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(into(error));
    if (!error) {
      asio::co_spawn(io_, serve(std::move(socket)), asio::detached);
    } else if (acceptor_.is_open()) {
      log::warn("http: accept: {}", error.message());  // out of descriptors, most likely: let some end
      asio::steady_timer pause(io_, std::chrono::milliseconds(50));
      co_await pause.async_wait(into(error));
    }
  }
}

awaitable<void> HttpServer::Impl::serve(tcp::socket socket) {
  struct Count {
    uint32_t& n;
    explicit Count(uint32_t& counter) : n(counter) { ++n; }
    ~Count() { --n; }
  } const count(connections_);
  Session session(std::move(socket), identity_ ? identity_->current() : nullptr, shared_);
  const uint32_t most = shared_.options.connections_max;
  if (connections_ <= most) co_return co_await session.run();
  const std::string why = "too many connections (" + std::to_string(most) + ")";
  co_await session.turn_away(503, why);
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options, Handler handler,
                                                       std::function<std::string(int, const std::string&)> error_body) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler), std::move(error_body));
  MOESTRO_RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return impl_->port(); }
void HttpServer::take_uploads(SinkFor sink_for) { impl_->take_uploads(std::move(sink_for)); }
void HttpServer::run() { impl_->run(); }
void HttpServer::post(std::function<void()> work) { impl_->post(std::move(work)); }
void HttpServer::close_gate() { impl_->close_gate(); }
bool HttpServer::wait_answered(std::chrono::milliseconds limit) { return impl_->wait_answered(limit); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace moestro::orchestrator

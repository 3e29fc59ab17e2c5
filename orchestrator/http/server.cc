#include "orchestrator/http/server.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <array>
#include <deque>

#include "common/log.h"

namespace moestro::orchestrator {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using asio::ip::tcp;

namespace {
using boost::system::error_code;

/// Awaits with an error code instead of an exception.
auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

std::string chunk(const std::string& text) {
  char size[24];
  const int n = std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return std::string(size, static_cast<size_t>(n)) + text + "\r\n";
}
}  // namespace

/// What a handler holds. The connection's coroutine sleeps on `wake` and writes what is queued here.
class Pending final : public Exchange {
 public:
  Pending(asio::any_io_executor executor, uint64_t unsent_bytes_max)
      : wake(executor, asio::steady_timer::time_point::max()), unsent_bytes_max_(unsent_bytes_max) {}

  void respond(int status, const std::string& content_type, std::string body, const Headers& headers) override {
    if (done) return;
    http::response<http::string_body> r{static_cast<http::status>(status), 11};
    r.set(http::field::content_type, content_type);
    for (const auto& [name, value] : headers) r.set(name, value);
    r.body() = std::move(body);
    response = std::move(r);
    done = true;
    wake.cancel();
  }
  void begin_stream() override {
    streaming = true;
    wake.cancel();
  }
  void write(std::string text) override {
    if (gone || done || text.empty()) return;
    unsent_bytes += text.size();
    if (unsent_bytes > unsent_bytes_max_) too_slow = true;
    queue.push_back(std::move(text));
    wake.cancel();
  }
  void end_stream() override {
    done = true;
    wake.cancel();
  }
  void on_gone(std::function<void()> callback) override {
    if (gone)
      callback();
    else
      gone_callback = std::move(callback);
  }
  void client_left() {
    gone = true;
    queue.clear();
    if (auto callback = std::exchange(gone_callback, nullptr)) callback();
  }

  asio::steady_timer wake;
  std::optional<http::response<http::string_body>> response;
  std::deque<std::string> queue;
  std::function<void()> gone_callback;
  uint64_t unsent_bytes = 0;
  bool streaming = false, done = false, gone = false, too_slow = false;
  bool complete = false;  ///< the connection has gone on

 private:
  const uint64_t unsent_bytes_max_;
};

class HttpServer::Impl {
 public:
  Impl(HttpOptions options, Handler handler, std::function<std::string(int, const std::string&)> error_body)
      : options_(std::move(options)), handler_(std::move(handler)), error_body_(std::move(error_body)), acceptor_(io_) {}

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
      boost::system::error_code ignored;
      acceptor_.close(ignored);
    });
  }
  void stop() { io_.stop(); }

 private:
  awaitable<void> accept();
  awaitable<void> serve(tcp::socket socket);
  awaitable<bool> read_request(beast::tcp_stream& stream, beast::flat_buffer& buffer, http::request<http::string_body>& request);
  awaitable<bool> answer(beast::tcp_stream& stream, std::shared_ptr<Pending> pending, bool keep_alive);
  awaitable<bool> stream_answer(beast::tcp_stream& stream, std::shared_ptr<Pending> pending);
  awaitable<bool> refuse(beast::tcp_stream& stream, int status, const std::string& message);
  awaitable<void> watch(beast::tcp_stream& stream, std::shared_ptr<Pending> pending);

  const HttpOptions options_;
  const Handler handler_;
  const std::function<std::string(int, const std::string&)> error_body_;
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  uint32_t connections_ = 0;
};

Status HttpServer::Impl::open() {
  boost::system::error_code error;
  const std::string where = options_.host + ":" + std::to_string(options_.port);
  const auto address = asio::ip::make_address(options_.host == "localhost" ? "127.0.0.1" : options_.host, error);
  if (error) return invalid_argument("--http " + where + ": '" + options_.host + "' is not an IP address");
  const tcp::endpoint endpoint(address, options_.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return unavailable("cannot listen on " + where + ": " + error.message() + "; choose another with --http");
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
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  beast::tcp_stream stream(std::move(socket));
  if (connections_ > options_.connections_max) {
    co_await refuse(stream, 503, "too many connections (" + std::to_string(options_.connections_max) + ")");
    co_return;
  }
  beast::flat_buffer buffer;
  for (bool open = true; open;) {
    http::request<http::string_body> request;
    if (!co_await read_request(stream, buffer, request)) break;
    const std::string_view target(request.target().data(), request.target().size());
    auto pending = std::make_shared<Pending>(stream.get_executor(), options_.unsent_bytes_max);
    HttpRequest plain{std::string(request.method_string()), std::string(target.substr(0, target.find('?'))),
                      std::move(request.body())};
    handler_(std::move(plain), pending);
    open = co_await answer(stream, pending, request.keep_alive());
  }
  stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
}

awaitable<bool> HttpServer::Impl::read_request(beast::tcp_stream& stream, beast::flat_buffer& buffer,
                                               http::request<http::string_body>& request) {
  http::request_parser<http::string_body> parser;
  parser.body_limit(options_.body_bytes_max);
  parser.header_limit(options_.header_bytes_max);
  stream.expires_after(options_.request_timeout);
  error_code error;
  co_await http::async_read(stream, buffer, parser, into(error));
  if (!error) {
    request = parser.release();
    co_return true;
  }
  if (error == http::error::body_limit)
    co_await refuse(stream, 413, "the body is larger than " + std::to_string(options_.body_bytes_max) + " bytes");
  else if (error == http::error::header_limit)
    co_await refuse(stream, 431, "the header is larger than " + std::to_string(options_.header_bytes_max) + " bytes");
  else if (error.category() == http::make_error_code(http::error::bad_method).category() && error != http::error::end_of_stream &&
           error != http::error::partial_message)
    co_await refuse(stream, 400, "not an HTTP request: " + error.message());
  co_return false;
}

awaitable<bool> HttpServer::Impl::refuse(beast::tcp_stream& stream, int status, const std::string& message) {
  http::response<http::string_body> r{static_cast<http::status>(status), 11};
  r.set(http::field::content_type, "application/json");
  r.body() = error_body_(status, message);
  r.keep_alive(false);
  r.prepare_payload();
  stream.expires_after(std::chrono::seconds(5));
  error_code ignored;
  co_await http::async_write(stream, r, into(ignored));
  // Closing with unread data in the socket would reset the connection before the client has read the answer.
  stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
  stream.expires_after(std::chrono::seconds(2));
  std::array<char, 16384> rest;
  for (error_code error; !error;) co_await stream.async_read_some(asio::buffer(rest), into(error));
  co_return false;
}

/// Reads while an answer is awaited: the only thing that a well-behaved client does then is to leave.
awaitable<void> HttpServer::Impl::watch(beast::tcp_stream& stream, std::shared_ptr<Pending> pending) {
  // A pipelined request would be readable too: it stays in the socket, and the watch ends.
  error_code error;
  co_await stream.socket().async_wait(tcp::socket::wait_read, into(error));
  if (error || pending->complete) co_return;  // the answer is complete; the connection may be gone
  char byte;
  boost::system::error_code peek_error;
  const size_t n = stream.socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, peek_error);
  if (n > 0 && !peek_error) co_return;
  pending->client_left();
  pending->wake.cancel();
}

awaitable<bool> HttpServer::Impl::answer(beast::tcp_stream& stream, std::shared_ptr<Pending> pending, bool keep_alive) {
  stream.expires_never();
  error_code error;
  asio::co_spawn(stream.get_executor(), watch(stream, pending), asio::detached);
  while (!pending->done && !pending->streaming && !pending->gone) {
    pending->wake.expires_at(asio::steady_timer::time_point::max());
    co_await pending->wake.async_wait(into(error));
  }
  bool good = false;
  if (pending->gone) {
    good = false;
  } else if (pending->streaming) {
    good = co_await stream_answer(stream, pending);
  } else {
    pending->response->keep_alive(keep_alive);
    pending->response->prepare_payload();
    stream.expires_after(options_.request_timeout);
    co_await http::async_write(stream, *pending->response, into(error));
    good = !error;
  }
  pending->complete = true;
  if (!good) pending->client_left();
  pending->gone_callback = nullptr;  // it may hold what holds this exchange
  boost::system::error_code ignored;
  stream.socket().cancel(ignored);  // ends the watch
  co_return good && keep_alive;
}

awaitable<bool> HttpServer::Impl::stream_answer(beast::tcp_stream& stream, std::shared_ptr<Pending> pending) {
  std::string out =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  error_code error;
  for (;;) {
    while (!pending->queue.empty()) {
      pending->unsent_bytes -= pending->queue.front().size();
      out += chunk(pending->queue.front());
      pending->queue.pop_front();
    }
    const bool last = pending->done;
    if (last) out += "0\r\n\r\n";
    if (!out.empty()) {
      stream.expires_after(options_.request_timeout);
      co_await asio::async_write(stream, asio::buffer(out), into(error));
      if (error) co_return false;
      out.clear();
    }
    if (last) co_return true;
    if (pending->gone || pending->too_slow) co_return false;
    if (!pending->queue.empty() || pending->done) continue;
    pending->wake.expires_after(options_.keep_alive_comment);
    co_await pending->wake.async_wait(into(error));
    if (!error) out = chunk(": still working\n\n");
  }
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
void HttpServer::run() { impl_->run(); }
void HttpServer::post(std::function<void()> work) { impl_->post(std::move(work)); }
void HttpServer::close_gate() { impl_->close_gate(); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace moestro::orchestrator

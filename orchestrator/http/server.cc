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
#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "common/log.h"
#include "orchestrator/http/body_transfer.h"
#include "orchestrator/http/pending.h"

namespace moestro::orchestrator {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using asio::ip::tcp;

namespace {
using boost::system::error_code;

/// The answer for the wire. One to HEAD says how long its body would be, and has none.
http::response<http::string_body> whole_response(const Pending::Answer& answer, bool keep_alive, bool head) {
  http::response<http::string_body> r{static_cast<http::status>(answer.status), 11};
  r.set(http::field::content_type, answer.content_type);
  for (const auto& [name, value] : answer.headers) r.set(name, value);
  r.body() = answer.body;
  r.keep_alive(keep_alive);
  r.prepare_payload();
  if (answer.source) r.content_length(answer.source->bytes());  // its bytes follow
  if (head) r.body().clear();
  return r;
}

/// A request without its body. HEAD is a GET whose answer leaves its body out.
HttpRequest head_of(const http::request<http::string_body>& request) {
  const std::string_view target(request.target().data(), request.target().size());
  const size_t mark = target.find('?');
  HttpRequest plain{request.method() == http::verb::head ? "GET" : std::string(request.method_string()), std::string(target.substr(0, mark)), ""};
  if (mark != std::string_view::npos) plain.query = target.substr(mark + 1);
  plain.authorization = std::string(request[http::field::authorization]);
  plain.origin = std::string(request[http::field::origin]);
  plain.request_id = std::string(request["X-Request-Id"]);
  return plain;
}

std::string chunk(const std::string& text) {
  char size[24];
  const int n = std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return std::string(size, static_cast<size_t>(n)) + text + "\r\n";
}
}  // namespace

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
  bool wait_answered(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return answered_.wait_for(lock, limit, [this] { return answering_ == 0; });
  }
  void stop() { io_.stop(); }
  void take_uploads(SinkFor sink_for) { sink_for_ = std::move(sink_for); }

 private:
  struct Incoming {
    http::request<http::string_body> request;
    std::shared_ptr<BodySink> sink;
    bool whole = true;  ///< the body has been read to its end
  };

  awaitable<void> accept();
  awaitable<void> serve(tcp::socket socket);
  awaitable<bool> read_request(beast::tcp_stream& stream, beast::flat_buffer& buffer, Incoming& incoming);
  awaitable<bool> refuse(beast::tcp_stream& stream, error_code error, uint64_t body_bytes_max);
  awaitable<bool> agree_to_body(beast::tcp_stream& stream, const http::request<http::string_body>& header);
  awaitable<bool> answer(beast::tcp_stream& stream, std::shared_ptr<Pending> pending, bool keep_alive, bool head);
  awaitable<bool> stream_answer(beast::tcp_stream& stream, std::shared_ptr<Pending> pending, asio::steady_timer& wake);
  awaitable<bool> refuse(beast::tcp_stream& stream, int status, const std::string& message);
  awaitable<void> watch(beast::tcp_stream& stream, std::shared_ptr<Pending> pending);

  const HttpOptions options_;
  const Handler handler_;
  const std::function<std::string(int, const std::string&)> error_body_;
  SinkFor sink_for_ = [](const HttpRequest&, const std::string&) { return nullptr; };
  uint32_t connections_ = 0;
  std::mutex mutex_;
  std::condition_variable answered_;
  uint32_t answering_ = 0;  ///< requests that a handler has and whose answer is not out; under mutex_
  // Last, so that coroutines that io_ ends when it goes still find the rest.
  asio::io_context io_{1};
  tcp::acceptor acceptor_;

  /// Counts one request from its handler to the end of its answer.
  class Answering {
   public:
    explicit Answering(Impl& impl) : impl_(impl) { add(1); }
    ~Answering() { add(-1); }
    Answering(const Answering&) = delete;
    Answering& operator=(const Answering&) = delete;

   private:
    void add(int n) {
      const std::lock_guard lock(impl_.mutex_);
      impl_.answering_ += static_cast<uint32_t>(n);
      if (impl_.answering_ == 0) impl_.answered_.notify_all();
    }
    Impl& impl_;
  };
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
  boost::system::error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  beast::tcp_stream stream(std::move(socket));
  if (connections_ > options_.connections_max) {
    co_await refuse(stream, 503, "too many connections (" + std::to_string(options_.connections_max) + ")");
    co_return;
  }
  beast::flat_buffer buffer;
  for (bool open = true; open;) {
    Incoming incoming;
    if (!co_await read_request(stream, buffer, incoming)) break;
    auto& request = incoming.request;
    auto pending = std::make_shared<Pending>(options_.unsent_bytes_max);
    const bool head = request.method() == http::verb::head;
    HttpRequest plain = head_of(request);
    plain.body = std::move(request.body());
    plain.sink = std::move(incoming.sink);
    const Answering under_way(*this);
    handler_(std::move(plain), pending);
    open = co_await answer(stream, pending, request.keep_alive() && acceptor_.is_open() && incoming.whole, head);
    if (!incoming.whole) co_await let_client_read(stream);
    if (!acceptor_.is_open()) break;  // the gate was closed meanwhile
  }
  stream.socket().shutdown(tcp::socket::shutdown_both, ignored);
}

awaitable<bool> HttpServer::Impl::read_request(beast::tcp_stream& stream, beast::flat_buffer& buffer, Incoming& incoming) {
  http::request_parser<http::string_body> parser;
  const uint64_t bytes_max = std::max(options_.body_bytes_max, options_.upload_bytes_max);
  parser.body_limit(bytes_max);
  parser.header_limit(options_.header_bytes_max);
  stream.expires_after(options_.request_timeout);
  error_code error;
  co_await http::async_read_header(stream, buffer, parser, into(error));
  if (error) co_return co_await refuse(stream, error, bytes_max);
  if (!parser.is_done()) {
    const auto type = parser.get()[http::field::content_type];
    incoming.sink = sink_for_(head_of(parser.get()), std::string(type.data(), type.size()));
    if (!incoming.sink) {
      if (parser.content_length().value_or(0) > options_.body_bytes_max) co_return co_await refuse(stream, http::error::body_limit, options_.body_bytes_max);
      parser.body_limit(options_.body_bytes_max);
    }
    if (!co_await agree_to_body(stream, parser.get())) co_return false;
  }
  if (incoming.sink) {
    incoming.request.base() = parser.get().base();
    incoming.whole = co_await take_body(stream, buffer, parser, *incoming.sink, options_.request_timeout, error);
  } else {
    if (!parser.is_done()) co_await http::async_read(stream, buffer, parser, into(error));
    if (!error) incoming.request = parser.release();
  }
  if (error) co_return co_await refuse(stream, error, incoming.sink ? bytes_max : options_.body_bytes_max);
  co_return true;
}

awaitable<bool> HttpServer::Impl::refuse(beast::tcp_stream& stream, error_code error, uint64_t body_bytes_max) {
  if (error == http::error::body_limit)
    co_await refuse(stream, 413, "the body is larger than " + std::to_string(body_bytes_max) + " bytes");
  else if (error == http::error::header_limit)
    co_await refuse(stream, 431, "the header is larger than " + std::to_string(options_.header_bytes_max) + " bytes");
  else if (error.category() == http::make_error_code(http::error::bad_method).category() && error != http::error::end_of_stream &&
           error != http::error::partial_message)
    co_await refuse(stream, 400, "not an HTTP request: " + error.message());
  co_return false;
}

/// A client may ask before it sends a long body (Expect: 100-continue), and waits for the answer. What is too long was refused before.
awaitable<bool> HttpServer::Impl::agree_to_body(beast::tcp_stream& stream, const http::request<http::string_body>& header) {
  const auto expect = header.find(http::field::expect);
  if (expect == header.end() || header.version() < 11) co_return true;
  if (!beast::iequals(expect->value(), "100-continue")) co_return co_await refuse(stream, 417, "'Expect' can only be 100-continue");
  error_code error;
  co_await asio::async_write(stream, asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")), into(error));
  co_return !error;
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
  co_await let_client_read(stream);
  co_return false;
}

/// Reads while an answer is awaited: the only thing that a well-behaved client does then is to leave.
awaitable<void> HttpServer::Impl::watch(beast::tcp_stream& stream, std::shared_ptr<Pending> pending) {
  // A pipelined request would be readable too: it stays in the socket, and the watch ends.
  error_code error;
  co_await stream.socket().async_wait(tcp::socket::wait_read, into(error));
  if (error || pending->detached()) co_return;  // the answer is complete; the connection may be gone
  char byte;
  boost::system::error_code peek_error;
  const size_t n = stream.socket().receive(asio::buffer(&byte, 1), tcp::socket::message_peek, peek_error);
  if (n > 0 && !peek_error) co_return;
  pending->client_left();
}

awaitable<bool> HttpServer::Impl::answer(beast::tcp_stream& stream, std::shared_ptr<Pending> pending, bool keep_alive, bool head) {
  stream.expires_never();
  error_code error;
  asio::steady_timer wake(stream.get_executor(), asio::steady_timer::time_point::max());
  struct Attached {  // lets go of the handler's side also when the server ends amid an answer
    Pending& pending;
    ~Attached() { pending.detach(); }
  } const attached{*pending};
  pending->attach([&wake] { wake.cancel(); });
  asio::co_spawn(stream.get_executor(), watch(stream, pending), asio::detached);
  while (!pending->done() && !pending->streaming() && !pending->gone()) co_await wake.async_wait(into(error));
  bool good = false;
  if (pending->gone()) {
    good = false;
  } else if (pending->streaming()) {
    good = co_await stream_answer(stream, pending, wake);
  } else {
    const auto source = pending->answer()->source;
    auto response = whole_response(*pending->answer(), keep_alive, head);
    stream.expires_after(options_.request_timeout);
    co_await http::async_write(stream, response, into(error));
    good = !error;
    if (good && source && !head) good = co_await send_body(stream, *source, options_.request_timeout);
  }
  if (!good) pending->client_left();
  boost::system::error_code ignored;
  stream.socket().cancel(ignored);  // ends the watch
  co_return good && keep_alive;
}

awaitable<bool> HttpServer::Impl::stream_answer(beast::tcp_stream& stream, std::shared_ptr<Pending> pending, asio::steady_timer& wake) {
  std::string out =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
      "Transfer-Encoding: chunked\r\n";
  for (const auto& [name, value] : pending->stream_headers()) out += name + ": " + value + "\r\n";
  out += "\r\n";
  error_code error;
  for (;;) {
    for (const std::string& text : pending->take_text()) out += chunk(text);
    const bool last = pending->done();
    if (last) out += "0\r\n\r\n";
    if (!out.empty()) {
      stream.expires_after(options_.request_timeout);
      co_await asio::async_write(stream, asio::buffer(out), into(error));
      if (error) co_return false;
      out.clear();
    }
    if (last) co_return true;
    if (pending->gone() || pending->too_slow()) co_return false;
    if (pending->has_text() || pending->done()) continue;
    wake.expires_after(options_.keep_alive_comment);
    co_await wake.async_wait(into(error));
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
void HttpServer::take_uploads(SinkFor sink_for) { impl_->take_uploads(std::move(sink_for)); }
void HttpServer::run() { impl_->run(); }
void HttpServer::post(std::function<void()> work) { impl_->post(std::move(work)); }
void HttpServer::close_gate() { impl_->close_gate(); }
bool HttpServer::wait_answered(std::chrono::milliseconds limit) { return impl_->wait_answered(limit); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace moestro::orchestrator

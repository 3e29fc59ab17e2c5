#include "orchestrator/http/session.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/write.hpp>
#include <boost/beast/core/detect_ssl.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/serializer.hpp>
#include <boost/beast/http/write.hpp>

#include "orchestrator/http/body_transfer.h"
#include "orchestrator/http/request_head.h"

namespace moestro::orchestrator {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr size_t kReadAhead = 1024, kReadAheadMax = 16 << 10;
constexpr int kUnsentInKernel = 16 << 10;

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

std::string chunk(const std::string& text) {
  char size[24];
  const int n = std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return std::string(size, static_cast<size_t>(n)) + text + "\r\n";
}

beast::tcp_stream prepared(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  // What the client has not made room for stays with us, where it is seen and kept small; the kernel would take megabytes.
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentInKernel, sizeof kUnsentInKernel);
  return beast::tcp_stream(std::move(socket));
}

}  // namespace

Session::Session(tcp::socket socket, std::shared_ptr<tls::Context> context, SessionContext& shared)
    : shared_(shared),
      stream_(prepared(std::move(socket))),
      context_(std::move(context)),
      read_ahead_ended_(stream_.get_executor(), asio::steady_timer::time_point::max()) {}

awaitable<void> Session::run() {
  bool open = co_await greet();
  while (open) {
    Incoming incoming;
    if (!co_await read_request(incoming)) break;
    auto& request = incoming.request;
    auto pending = std::make_shared<Pending>(shared_.options.crowded_bytes);
    const bool head = request.method() == http::verb::head;
    HttpRequest plain = head_of(request);
    plain.body = std::move(request.body());
    plain.sink = std::move(incoming.sink);
    const Answering::One under_way(shared_.answering);
    shared_.handler(std::move(plain), pending);
    open = co_await answer(pending, request.keep_alive() && shared_.gate_open() && incoming.whole, head);
    if (!incoming.whole) co_await let_client_read(stream_);
    if (!shared_.gate_open()) break;  // it was closed meanwhile
  }
  co_await say_end(stream_);
}

awaitable<void> Session::turn_away(int status, const std::string& message) {
  const bool ready = co_await greet();
  if (ready) {
    co_await refuse(status, message);
  }
}

/// Makes the connection a secure one where it is to be. A client that speaks plain HTTP to such a port is told so.
awaitable<bool> Session::greet() {
  if (!context_) co_return true;
  stream_.expires_after(shared_.options.request_timeout);
  error_code error;
  const bool speaks_tls = co_await beast::async_detect_ssl(stream_.tcp(), buffer_, into(error));
  if (error) co_return false;
  if (!speaks_tls) {
    const std::string why = "this port speaks https: begin its URL with https://";
    co_return co_await refuse(400, why);
  }
  stream_.secure(context_);
  const size_t used = co_await stream_.tls().async_handshake(asio::ssl::stream_base::server, buffer_.data(), into(error));
  buffer_.consume(used);
  co_return !error && buffer_.size() == 0;
}

awaitable<bool> Session::read_request(Incoming& incoming) {
  const HttpOptions& options = shared_.options;
  RequestParser parser;
  const uint64_t bytes_max = std::max(options.body_bytes_max, options.upload_bytes_max);
  limit(parser, options.header_bytes_max, bytes_max);
  stream_.expires_after(options.request_timeout);
  error_code error;
  co_await http::async_read_header(stream_, buffer_, parser, into(error));
  if (error) co_return co_await refuse(error, bytes_max);
  if (!parser.is_done()) {
    const auto type = parser.get()[http::field::content_type];
    incoming.sink = shared_.sink_for(head_of(parser.get()), std::string(type.data(), type.size()));
    if (!incoming.sink) {
      if (parser.content_length().value_or(0) > options.body_bytes_max) co_return co_await refuse(http::error::body_limit, options.body_bytes_max);
      parser.body_limit(options.body_bytes_max);
    }
    if (!co_await agree_to_body(parser.get())) co_return false;
  }
  if (incoming.sink) {
    incoming.request.base() = parser.get().base();
    incoming.whole = co_await take_body(stream_, buffer_, parser, *incoming.sink, options.request_timeout, error);
  } else {
    if (!parser.is_done()) co_await http::async_read(stream_, buffer_, parser, into(error));
    if (!error) incoming.request = parser.release();
  }
  if (error) co_return co_await refuse(error, incoming.sink ? bytes_max : options.body_bytes_max);
  co_return true;
}

awaitable<bool> Session::refuse(error_code error, uint64_t body_bytes_max) {
  if (error == http::error::body_limit)
    co_await refuse(413, "the body is larger than " + std::to_string(body_bytes_max) + " bytes");
  else if (error == http::error::header_limit)
    co_await refuse(431, "the header is larger than " + std::to_string(shared_.options.header_bytes_max) + " bytes");
  else if (is_no_http(error))
    co_await refuse(400, "not an HTTP request: " + error.message());
  co_return false;
}

/// A client may ask before it sends a long body (Expect: 100-continue), and waits for the answer. What is too long was refused before.
awaitable<bool> Session::agree_to_body(const http::request<http::string_body>& header) {
  const auto expect = header.find(http::field::expect);
  if (expect == header.end() || header.version() < 11) co_return true;
  if (!beast::iequals(expect->value(), "100-continue")) co_return co_await refuse(417, "'Expect' can only be 100-continue");
  error_code error;
  co_await asio::async_write(stream_, asio::buffer(std::string_view("HTTP/1.1 100 Continue\r\n\r\n")), into(error));
  co_return !error;
}

awaitable<bool> Session::refuse(int status, const std::string& message) {
  http::response<http::string_body> r{static_cast<http::status>(status), 11};
  r.set(http::field::content_type, "application/json");
  r.body() = shared_.error_body(status, message);
  r.keep_alive(false);
  r.prepare_payload();
  stream_.expires_after(std::chrono::seconds(5));
  error_code ignored;
  co_await http::async_write(stream_, r, into(ignored));
  co_await let_client_read(stream_);
  co_return false;
}

/// Reads while an answer is awaited. What comes is the beginning of the next request, or the client leaves: in TLS the one cannot be told
/// from the other without reading.
void Session::read_ahead(const std::shared_ptr<Pending>& pending) {
  reading_ahead_ = true;
  stream_.async_read_some(buffer_.prepare(kReadAhead), [this, pending](error_code error, size_t bytes) {
    buffer_.commit(bytes);
    if (!error && !answered_ && buffer_.size() < kReadAheadMax) return read_ahead(pending);
    reading_ahead_ = false;
    read_ahead_ended_.cancel();
    if (error && !answered_) pending->client_left();
  });
}

awaitable<void> Session::end_read_ahead() {
  error_code ignored;
  if (stream_.tcp().socket().is_open()) stream_.tcp().socket().cancel(ignored);
  while (reading_ahead_) co_await read_ahead_ended_.async_wait(into(ignored));
}

awaitable<bool> Session::answer(std::shared_ptr<Pending> pending, bool keep_alive, bool head) {
  stream_.expires_never();  // of what is read ahead
  error_code error;
  asio::steady_timer wake(stream_.get_executor(), asio::steady_timer::time_point::max());
  struct Attached {  // lets go of the handler's side also when the server ends amid an answer
    Pending& pending;
    ~Attached() { pending.detach(); }
  } const attached{*pending};
  pending->attach([&wake] { wake.cancel(); });
  answered_ = false;
  read_ahead(pending);
  while (!pending->done() && !pending->streaming() && !pending->gone()) co_await wake.async_wait(into(error));
  bool good = false;
  if (pending->gone()) {
    good = false;
  } else if (pending->streaming()) {
    good = co_await stream_answer(*pending, wake);
  } else {
    good = co_await whole_answer(*pending->answer(), keep_alive, head);
  }
  if (!good) pending->client_left();
  answered_ = true;
  co_await end_read_ahead();
  co_return good && keep_alive;
}

awaitable<bool> Session::whole_answer(const Pending::Answer& answer, bool keep_alive, bool head) {
  auto response = whole_response(answer, keep_alive, head);
  http::response_serializer<http::string_body> pieces(response);
  while (!pieces.is_done()) {
    error_code error;
    stream_.expires_after(shared_.options.reader_wait);
    co_await http::async_write_some(stream_, pieces, into(error));
    if (error) co_return false;
  }
  if (!answer.source || head) co_return true;
  co_return co_await send_body(stream_, *answer.source, shared_.options.reader_wait);
}

awaitable<bool> Session::stream_answer(Pending& pending, asio::steady_timer& wake) {
  std::string out =
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\nX-Accel-Buffering: no\r\n"
      "Transfer-Encoding: chunked\r\n";
  for (const auto& [name, value] : pending.stream_headers()) out += name + ": " + value + "\r\n";
  out += "\r\n";
  for (;;) {
    for (const std::string& text : pending.take_text()) out += chunk(text);
    const bool last = pending.done() && !pending.has_text();
    if (last) out += "0\r\n\r\n";
    if (!co_await send_text(stream_, out, shared_.options.reader_wait)) co_return false;
    out.clear();
    if (last) co_return true;
    if (pending.gone()) co_return false;
    if (pending.has_text() || pending.done()) continue;
    error_code error;
    wake.expires_after(shared_.options.keep_alive_comment);
    co_await wake.async_wait(into(error));
    if (!error) out = chunk(": still working\n\n");
  }
}

}  // namespace moestro::orchestrator

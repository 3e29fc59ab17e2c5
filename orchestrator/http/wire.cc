#include "orchestrator/http/wire.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/beast/core/detect_ssl.hpp>
#include <boost/beast/core/flat_buffer.hpp>

#include "common/tls/either_stream.h"
#include "orchestrator/http/said.h"

namespace moestro::orchestrator {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr int kUnsentInKernel = 16 << 10;
/// What a TLS client may say before its handshake is looked at.
constexpr size_t kHelloBytesMax = 16 << 10;
constexpr std::chrono::seconds kLinger{2};

beast::tcp_stream prepared(tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  // What the client has not made room for stays with us, where it is seen and kept small; the kernel would take
  // megabytes.
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentInKernel, sizeof kUnsentInKernel);
  return beast::tcp_stream(std::move(socket));
}

}  // namespace

struct Wire::Stream {
  Stream(tcp::socket socket, std::shared_ptr<tls::Context> c)
      : context(std::move(c)), either(prepared(std::move(socket))) {}
  tcp::socket& socket() { return either.tcp().socket(); }

  const std::shared_ptr<tls::Context> context;
  tls::EitherStream either;
};

Wire::Wire(tcp::socket socket, std::shared_ptr<tls::Context> context)
    : stream_(std::make_unique<Stream>(std::move(socket), std::move(context))) {}
Wire::~Wire() = default;

asio::any_io_executor Wire::executor() { return stream_->either.get_executor(); }

awaitable<Wire::Greeting> Wire::greet() {
  if (!stream_->context) co_return Greeting::kReady;
  tls::EitherStream& stream = stream_->either;
  error_code error;
  beast::flat_buffer heard(kHelloBytesMax);
  const bool speaks_tls = co_await beast::async_detect_ssl(stream.tcp(), heard, into(error));
  if (error) co_return Greeting::kFailed;
  if (!speaks_tls) co_return Greeting::kNoTls;
  stream.secure(stream_->context);
  const size_t used =
      co_await stream.tls().async_handshake(asio::ssl::stream_base::server, heard.data(), into(error));
  co_return error || used != heard.size() ? Greeting::kFailed : Greeting::kReady;
}

awaitable<size_t> Wire::read_some(char* to, size_t room, error_code& error) {
  co_return co_await stream_->either.async_read_some(asio::buffer(to, room), into(error));
}

awaitable<size_t> Wire::write_some(std::string_view bytes, error_code& error) {
  co_return co_await stream_->either.async_write_some(asio::buffer(bytes), into(error));
}

awaitable<bool> Wire::write(std::string_view bytes, std::chrono::seconds patience) {
  while (!bytes.empty()) {
    error_code error;
    expires_after(patience);  // anew with each piece that the client makes room for
    bytes.remove_prefix(co_await write_some(bytes, error));
    if (error) co_return false;
  }
  co_return true;
}

void Wire::read_beside(char* to, size_t room, std::function<void(error_code, size_t)> done) {
  stream_->either.async_read_some(asio::buffer(to, room), std::move(done));
}

void Wire::cancel() {
  error_code ignored;
  if (stream_->socket().is_open()) stream_->socket().cancel(ignored);
}

void Wire::expires_after(std::chrono::seconds limit) { stream_->either.expires_after(limit); }
void Wire::expires_never() { stream_->either.expires_never(); }

bool Wire::client_closed() {
  if (!stream_->socket().is_open()) return true;
  pollfd look{stream_->socket().native_handle(), POLLRDHUP, 0};
  return ::poll(&look, 1, 0) > 0;
}

awaitable<void> Wire::say_end() {
  tls::EitherStream& stream = stream_->either;
  error_code error;
  if (stream.secured() && stream_->socket().is_open()) {
    stream.expires_after(std::chrono::seconds(1));  // it also waits for the client to say the same
    co_await stream.tls().async_shutdown(into(error));
  }
  if (stream_->socket().is_open()) stream_->socket().shutdown(tcp::socket::shutdown_send, error);
}

awaitable<void> Wire::let_client_read() {
  static char nobody_reads_this[16 << 10];  // of all connections: thousands may be here at once
  co_await say_end();
  error_code error;
  expires_after(kLinger);
  while (!error) co_await stream_->either.tcp().async_read_some(asio::buffer(nobody_reads_this), into(error));
}

void Wire::close() {
  error_code ignored;
  stream_->socket().close(ignored);
}

}  // namespace moestro::orchestrator

#include "orchestrator/http/body_transfer.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/read.hpp>
#include <array>

namespace moestro::orchestrator {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using boost::system::error_code;

namespace {

constexpr size_t kPieceBytes = 256 << 10;

/// What a coroutine waits for until somebody on this thread says it. Who says it holds no more than a weak pointer: the coroutine may be gone.
template <typename T>
struct Said {
  explicit Said(const asio::any_io_executor& executor) : timer(executor, asio::steady_timer::time_point::max()) {}
  static std::function<void(T)> teller(const std::shared_ptr<Said>& said) {
    return [weak = std::weak_ptr<Said>(said)](T value) {
      const auto self = weak.lock();
      if (!self) return;
      self->value = std::move(value);
      self->timer.cancel();
    };
  }
  awaitable<T> wait() {
    error_code ignored;
    while (!value) co_await timer.async_wait(into(ignored));
    co_return std::move(*value);
  }
  asio::steady_timer timer;
  std::optional<T> value;
};

}  // namespace

awaitable<bool> take_body(beast::tcp_stream& stream, beast::flat_buffer& buffer, http::request_parser<http::string_body>& head, BodySink& sink,
                          std::chrono::seconds silence, error_code& error) {
  http::request_parser<http::buffer_body> parser(std::move(head));
  while (!parser.is_done()) {
    std::string piece(kPieceBytes, '\0');
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    parser.get().body().more = true;
    stream.expires_after(silence);
    co_await http::async_read(stream, buffer, parser, into(error));
    if (error == http::error::need_buffer) error = {};
    if (error) co_return false;
    piece.resize(piece.size() - parser.get().body().size);
    const auto taken = std::make_shared<Said<bool>>(stream.get_executor());
    sink.take(std::move(piece), Said<bool>::teller(taken));
    if (!co_await taken->wait()) co_return parser.is_done();
  }
  co_return true;
}

awaitable<bool> send_body(beast::tcp_stream& stream, BodySource& source, std::chrono::seconds silence) {
  for (uint64_t left = source.bytes(); left > 0;) {
    const auto ready = std::make_shared<Said<std::string>>(stream.get_executor());
    source.next(Said<std::string>::teller(ready));
    const std::string piece = co_await ready->wait();
    if (piece.empty() || piece.size() > left) co_return false;
    error_code error;
    stream.expires_after(silence);
    co_await asio::async_write(stream, asio::buffer(piece), into(error));
    if (error) co_return false;
    left -= piece.size();
  }
  co_return true;
}

awaitable<void> let_client_read(beast::tcp_stream& stream) {
  error_code error;
  stream.socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
  stream.expires_after(std::chrono::seconds(2));
  std::array<char, 16384> rest;
  for (error = {}; !error;) co_await stream.async_read_some(asio::buffer(rest), into(error));
}

}  // namespace moestro::orchestrator

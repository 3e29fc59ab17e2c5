#include "orchestrator/http/body_transfer.h"

#include <boost/asio/ip/tcp.hpp>
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

}  // namespace

awaitable<bool> take_body(tls::EitherStream& stream, beast::flat_buffer& buffer, http::request_parser<http::string_body>& head, BodySink& sink,
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

awaitable<bool> send_text(tls::EitherStream& stream, std::string_view text, std::chrono::seconds patience) {
  while (!text.empty()) {
    error_code error;
    stream.expires_after(patience);  // anew with each piece that the client makes room for
    const size_t sent = co_await stream.async_write_some(asio::buffer(text), into(error));
    if (error) co_return false;
    text.remove_prefix(sent);
  }
  co_return true;
}

awaitable<bool> send_body(tls::EitherStream& stream, BodySource& source, std::chrono::seconds patience) {
  for (uint64_t left = source.bytes(); left > 0;) {
    const auto ready = std::make_shared<Said<std::string>>(stream.get_executor());
    source.next(Said<std::string>::teller(ready));
    const std::string piece = co_await ready->wait();
    if (piece.empty() || piece.size() > left) co_return false;
    if (!co_await send_text(stream, piece, patience)) co_return false;
    left -= piece.size();
  }
  co_return true;
}

awaitable<void> say_end(tls::EitherStream& stream) {
  error_code error;
  if (stream.secured() && stream.tcp().socket().is_open()) {
    stream.expires_after(std::chrono::seconds(1));  // it also waits for the client to say the same
    co_await stream.tls().async_shutdown(into(error));
  }
  if (stream.tcp().socket().is_open()) stream.tcp().socket().shutdown(asio::ip::tcp::socket::shutdown_send, error);
}

awaitable<void> let_client_read(tls::EitherStream& stream) {
  co_await say_end(stream);
  error_code error;
  stream.expires_after(std::chrono::seconds(2));
  std::array<char, 16384> rest;
  while (!error) co_await stream.tcp().async_read_some(asio::buffer(rest), into(error));
}

}  // namespace moestro::orchestrator

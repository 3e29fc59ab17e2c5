#pragma once
// Bytes in pieces, both ways: what is too large for memory goes through sinks and sources. Coroutines of the server's thread.

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <string_view>

#include "common/tls/either_stream.h"
#include "orchestrator/http/exchange.h"
#include "orchestrator/http/said.h"

namespace moestro::orchestrator {

/// Reads the body that follows `head` into the sink. `silence` bounds the wait for each piece. True if it was read to its end; false with
/// `error`, or without one if the sink wants no more.
boost::asio::awaitable<bool> take_body(tls::EitherStream& stream, boost::beast::flat_buffer& buffer,
                                       boost::beast::http::request_parser<boost::beast::http::string_body>& head, BodySink& sink,
                                       std::chrono::seconds silence, boost::system::error_code& error);

/// Writes it all, however slowly the client reads. False if the client takes nothing of it for `patience`, or is gone.
boost::asio::awaitable<bool> send_text(tls::EitherStream& stream, std::string_view text, std::chrono::seconds patience);

/// Writes the source's bytes, likewise. False if either side fails: the connection is of no use then.
boost::asio::awaitable<bool> send_body(tls::EitherStream& stream, BodySource& source, std::chrono::seconds patience);

/// Says that nothing more comes: in TLS a client could not tell otherwise whether it has heard everything.
boost::asio::awaitable<void> say_end(tls::EitherStream& stream);

/// Closes our side and reads what still comes for two seconds: closing with unread data in the socket would reset the connection before
/// the client has read the answer.
boost::asio::awaitable<void> let_client_read(tls::EitherStream& stream);

}  // namespace moestro::orchestrator

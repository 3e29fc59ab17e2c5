#pragma once
// Bodies in pieces, both ways: what is too large for memory goes through sinks and sources. Coroutines of the server's thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>

#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

/// Awaits with an error code instead of an exception.
inline auto into(boost::system::error_code& error) { return boost::asio::redirect_error(boost::asio::use_awaitable, error); }

/// Reads the body that follows `head` into the sink. `silence` bounds the wait for each piece. True if it was read to its end; false with
/// `error`, or without one if the sink wants no more.
boost::asio::awaitable<bool> take_body(boost::beast::tcp_stream& stream, boost::beast::flat_buffer& buffer,
                                       boost::beast::http::request_parser<boost::beast::http::string_body>& head, BodySink& sink,
                                       std::chrono::seconds silence, boost::system::error_code& error);

/// Writes the source's bytes. False if either side fails: the connection is of no use then.
boost::asio::awaitable<bool> send_body(boost::beast::tcp_stream& stream, BodySource& source, std::chrono::seconds silence);

/// Closes our side and reads what still comes for two seconds: closing with unread data in the socket would reset the connection before
/// the client has read the answer.
boost::asio::awaitable<void> let_client_read(boost::beast::tcp_stream& stream);

}  // namespace moestro::orchestrator

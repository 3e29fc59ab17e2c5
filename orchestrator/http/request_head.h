#pragma once
// The head of a request, as Boost.Beast has read it, for handlers. Needs no socket, so that it can be fuzzed.

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstdint>
#include <string>

#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

/// What is larger is refused as it is read.
void limit(RequestParser& parser, uint32_t header_bytes_max, uint64_t body_bytes_max);

/// A request without its body. HEAD is a GET whose answer leaves its body out.
HttpRequest head_of(const boost::beast::http::request<boost::beast::http::string_body>& request);

/// Whether Beast's parser says that this is no HTTP; not that the client went away.
bool is_no_http(const boost::system::error_code& error);

}  // namespace moestro::orchestrator

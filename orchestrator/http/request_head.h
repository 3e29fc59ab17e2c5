#pragma once
// Converts the head of a request from Boost.Beast for handlers. Needs no socket, so that it can be fuzzed.

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "orchestrator/http/exchange.h"
#include "orchestrator/http/refusal.h"

namespace moestro::orchestrator {

/// A string that grows as the body arrives. The size that a client announces reserves nothing.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, typename Fields>
    reader(boost::beast::http::header<is_request, Fields>&, std::string& body) : body_(body) {}
    void init(const boost::optional<uint64_t>&, boost::system::error_code& error) { error = {}; }
    size_t put(const boost::asio::const_buffer& piece, boost::system::error_code& error) {
      error = {};
      body_.append(static_cast<const char*>(piece.data()), piece.size());
      return piece.size();
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    std::string& body_;
  };
};

using RequestParser = boost::beast::http::request_parser<GrowingBody>;
using RequestMessage = boost::beast::http::request<GrowingBody>;

/// Sets limits; larger requests are refused while they are read.
void limit(RequestParser& parser, uint32_t header_bytes_max, uint64_t body_bytes_max);

/// A request without its body. HEAD is a GET whose answer leaves its body out; of an absolute-form target
/// (http://host/path) the host is left out.
HttpRequest head_of(const RequestMessage& request);

/// Why the end or the target of the request is ambiguous (RFC 9112). Its connection must be closed, because a proxy in
/// front of this server may read it as a different request.
std::optional<Refusal> framing_problem(const RequestMessage& request);

/// Whether Beast's parser says that this is not HTTP. A client that left is not such an error.
bool is_no_http(const boost::system::error_code& error);

}  // namespace moestro::orchestrator

// fuzz-deps: moestro_http_head
// A request as it arrives, under the server's limits: the first byte is the size of its pieces. However it is cut, it
// says the same.

#include <boost/beast/core/flat_buffer.hpp>
#include <boost/asio/buffer.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "common/check.h"
#include "orchestrator/http/request_head.h"

namespace api = moestro::orchestrator;
namespace asio = boost::asio;

namespace {

constexpr uint64_t kBodyMax = 4096;
constexpr uint32_t kHeaderMax = 1024;

/// What a handler would be given; nothing if it is refused or not whole.
std::optional<api::HttpRequest> read(std::string_view text, size_t piece) {
  api::RequestParser parser;
  api::limit(parser, kHeaderMax, kBodyMax);
  parser.eager(true);
  boost::beast::flat_buffer buffer;
  while (!parser.is_done()) {
    const size_t n = std::min(piece, text.size());
    if (n == 0) return std::nullopt;
    buffer.commit(asio::buffer_copy(buffer.prepare(n), asio::buffer(text.data(), n)));
    text.remove_prefix(n);
    boost::system::error_code error;
    buffer.consume(parser.put(buffer.data(), error));
    if (error == boost::beast::http::error::need_more) continue;
    if (error) return std::nullopt;
  }
  auto request = parser.release();
  if (const auto problem = api::framing_problem(request)) {
    MOESTRO_CHECK(problem->status == 400 || problem->status == 501, "a refusal without a status of its own");
    return std::nullopt;
  }
  MOESTRO_CHECK(request.body().size() <= kBodyMax, "a body beyond the limit");
  api::HttpRequest plain = api::head_of(request);
  plain.body = std::move(request.body());
  return plain;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto whole = read(text, text.size()), pieces = read(text, data[0] + size_t{1});
  if (whole)
    MOESTRO_CHECK(!whole->method.empty() && whole->path.find('?') == std::string::npos &&
                      (whole->path.starts_with('/') || whole->path == "*"),
                  "a head that cannot be");
  if (whole && pieces)
    MOESTRO_CHECK(whole->method == pieces->method && whole->path == pieces->path && whole->query == pieces->query &&
                      whole->body == pieces->body && whole->authorization == pieces->authorization &&
                      whole->origin == pieces->origin,
                  "what is read depends on the pieces");
  return 0;
}

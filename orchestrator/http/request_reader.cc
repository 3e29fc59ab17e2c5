#include "orchestrator/http/request_reader.h"

#include <algorithm>
#include <boost/beast/http/error.hpp>

#include "orchestrator/http/request_head.h"
#include "orchestrator/http/said.h"

namespace moestro::orchestrator {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::awaitable;
using boost::system::error_code;

namespace {

/// Of a head so much is each connection's own; what is longer finds room in the budget, or not.
constexpr size_t kHeadBytesOwn = 4 << 10;
constexpr size_t kHeadRoom = 1 << 10, kBodyRoom = 16 << 10;
/// Of one body. They say nothing here, and each could be as long as a body (RFC 9112, 7.1.1).
constexpr size_t kChunkExtensionBytesMax = 16 << 10;
/// A sink gets pieces of about so many bytes.
constexpr size_t kPieceBytes = 192 << 10;
/// A body of so many bytes still finds a place where longer ones have taken what is theirs.
constexpr uint64_t kSmallBodyBytes = 256 << 10;

}  // namespace

ReadBudgets::ReadBudgets(const HttpOptions& options)
    : heads(std::make_shared<ByteBudget>(options.heads_bytes_max, options.header_bytes_max)),
      bodies(std::make_shared<ByteBudget>(std::max(options.bodies_bytes_max, 2 * options.body_bytes_max),
                                          kSmallBodyBytes)) {}

/// Between the first byte of a head and the end of its body.
struct RequestReader::Parsing {
  Parsing() { parser.on_chunk_header(on_chunk); }
  RequestParser parser;
  size_t extension_bytes = 0;
  std::function<void(uint64_t, boost::beast::string_view, error_code&)> on_chunk =
      [this](uint64_t, boost::beast::string_view extensions, error_code& error) {
        if ((extension_bytes += extensions.size()) > kChunkExtensionBytesMax) error = http::error::bad_chunk_extension;
      };
};

RequestReader::RequestReader(Wire& wire, const HttpOptions& options, const ReadBudgets& budgets)
    : wire_(wire), options_(options), budgets_(budgets) {}
RequestReader::~RequestReader() = default;

Refusal RequestReader::refusal_of(const error_code& error, uint64_t body_bytes_max) const {
  if (error == http::error::body_limit)
    return {413, "the body is larger than " + std::to_string(body_bytes_max) + " bytes"};
  if (error == http::error::header_limit)
    return {431, "the header is larger than " + std::to_string(options_.header_bytes_max) + " bytes"};
  if (is_no_http(error)) return {400, "not an HTTP request: " + error.message()};
  return {};
}

awaitable<std::optional<Refusal>> RequestReader::more(size_t room) {
  const auto to = unread_.prepare(room);
  error_code error;
  unread_.commit(co_await wire_.read_some(static_cast<char*>(to.data()), to.size(), error));
  co_return error ? std::optional(Refusal{}) : std::nullopt;
}

awaitable<std::optional<Refusal>> RequestReader::read_head(Head& head) {
  parsing_ = std::make_unique<Parsing>();
  RequestParser& parser = parsing_->parser;
  limit(parser, options_.header_bytes_max, std::max(options_.body_bytes_max, options_.upload_bytes_max));
  ByteLease lease(budgets_.heads);
  wire_.expires_after(options_.request_timeout);
  if (unread_.size() == 0) unread_.shrink_to_fit();
  while (!parser.is_header_done()) {
    error_code error = http::error::need_more;
    if (unread_.size() > 0) unread_.consume(parser.put(unread_.data(), error));
    if (error && error != http::error::need_more)
      co_return refusal_of(error, std::max(options_.body_bytes_max, options_.upload_bytes_max));
    if (parser.is_header_done()) break;
    const size_t room = std::max(kHeadRoom, std::min(unread_.size(), kBodyRoom));
    const size_t held = unread_.size() + room;
    if (held > kHeadBytesOwn && !lease.cover(2 * held))  // the buffer doubles
      co_return Refusal{503, "the server is reading too many long headers; try again later"};
    if (auto refusal = co_await more(room)) co_return refusal;
  }
  const auto& message = parser.get();
  if (auto problem = framing_problem(message)) co_return problem;
  head.request = head_of(message);
  head.content_type = std::string(message[http::field::content_type]);
  head.expect = message.version() < 11 ? "" : std::string(message[http::field::expect]);
  head.http_1_0 = message.version() < 11;
  head.keep_alive = message.keep_alive();
  head.is_head = message.method() == http::verb::head;
  head.has_body = !parser.is_done();
  if (!head.has_body) parsing_.reset();
  co_return std::nullopt;
}

void RequestReader::forget() {
  parsing_.reset();
  unread_.clear();
  unread_.shrink_to_fit();
}

/// Goes on until the body has grown by so many bytes, or is there.
awaitable<std::optional<Refusal>> RequestReader::read_piece(size_t bytes, uint64_t body_bytes_max) {
  RequestParser& parser = parsing_->parser;
  const size_t begin = parser.get().body().size();
  while (!parser.is_done() && parser.get().body().size() - begin < bytes) {
    error_code error = http::error::need_more;
    if (unread_.size() > 0) unread_.consume(parser.put(unread_.data(), error));
    if (error == http::error::need_more) {
      // What the parser leaves is the line before a chunk, or what follows the last: both are short.
      if (unread_.size() >= kBodyRoom) co_return Refusal{400, "not an HTTP request: a chunk's header is too long"};
      if (auto refusal = co_await more(kBodyRoom)) co_return refusal;
    } else if (error) {
      co_return refusal_of(error, body_bytes_max);
    }
  }
  co_return std::nullopt;
}

std::optional<Refusal> RequestReader::check_body(bool into_sink) const {
  const uint64_t most = into_sink ? options_.upload_bytes_max : options_.body_bytes_max;
  if (parsing_->parser.content_length().value_or(0) > most) return refusal_of(http::error::body_limit, most);
  return std::nullopt;
}

awaitable<std::optional<Refusal>> RequestReader::read_body(HttpRequest& request) {
  RequestParser& parser = parsing_->parser;
  parser.body_limit(options_.body_bytes_max);
  parser.get().body().reserve(parser.content_length().value_or(0));  // addresses, not memory, until it comes
  const auto lease = std::make_shared<ByteLease>(budgets_.bodies);
  while (!parser.is_done()) {
    if (auto refusal = co_await read_piece(1, options_.body_bytes_max)) co_return refusal;
    if (!lease->cover(parser.get().body().size()))
      co_return Refusal{503, "the server holds as many bytes of requests as it can; try again later"};
  }
  request.body = std::move(parser.get().body());
  request.body_lease = lease;
  parsing_.reset();
  co_return std::nullopt;
}

awaitable<std::optional<Refusal>> RequestReader::read_body(BodySink& sink, bool& whole) {
  RequestParser& parser = parsing_->parser;
  whole = false;
  while (!parser.is_done()) {
    wire_.expires_after(options_.request_timeout);  // the silence before a piece is bounded, not the whole
    if (auto refusal = co_await read_piece(kPieceBytes, options_.upload_bytes_max)) co_return refusal;
    const auto taken = std::make_shared<Said<bool>>(wire_.executor());
    sink.take(std::exchange(parser.get().body(), {}), Said<bool>::teller(taken));
    const bool wants_more = co_await taken->wait();
    if (!wants_more && !parser.is_done()) co_return std::nullopt;
  }
  whole = true;
  parsing_.reset();
  co_return std::nullopt;
}

}  // namespace moestro::orchestrator

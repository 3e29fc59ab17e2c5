#include "orchestrator/http/session.h"

#include <boost/beast/core/string.hpp>

#include "orchestrator/http/response_head.h"
#include "orchestrator/http/said.h"

namespace moestro::orchestrator {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr size_t kReadAhead = 1024, kReadAheadMax = 16 << 10;
/// Where nothing more is read ahead, the client's end is looked for so often.
constexpr std::chrono::milliseconds kLookEvery{100};

std::string chunk(const std::string& text) {
  char size[24];
  const int n = std::snprintf(size, sizeof size, "%zx\r\n", text.size());
  return std::string(size, static_cast<size_t>(n)) + text + "\r\n";
}

}  // namespace

Session::Session(tcp::socket socket, std::string peer, std::shared_ptr<asio::ssl::context> context,
                 SessionContext& shared, std::function<void(Doing)> does)
    : shared_(shared),
      peer_(std::move(peer)),
      does_(std::move(does)),
      wire_(std::move(socket), std::move(context)),
      reader_(wire_, shared.options, shared.budgets),
      read_ahead_ended_(wire_.executor(), asio::steady_timer::time_point::max()),
      look_(wire_.executor()) {}

awaitable<void> Session::run() {
  bool open = co_await greet();
  while (open) {
    does_(Doing::kWaiting);
    Incoming incoming;
    if (auto refusal = co_await read_request(incoming)) co_return co_await refuse(std::move(*refusal));
    RequestReader::Head& head = incoming.head;
    auto pending = std::make_shared<Pending>(shared_.options.crowded_bytes);
    const Answering::One under_way(shared_.answering);
    does_(Doing::kAnswered);
    shared_.handler(std::move(head.request), pending);
    open = co_await answer(pending, head, head.keep_alive && shared_.gate_open() && incoming.whole);
    if (!incoming.whole) {
      reader_.forget();
      does_(Doing::kWaiting);
      co_return co_await wire_.let_client_read();
    }
    if (!shared_.gate_open()) break;  // it was closed meanwhile
  }
  co_await wire_.say_end();
}

awaitable<void> Session::turn_away(Refusal refusal) {
  const bool ready = co_await greet();
  if (ready) co_await refuse(std::move(refusal));
}

/// Makes the connection a secure one where it is to be. A client that speaks plain HTTP to such a port is told so.
awaitable<bool> Session::greet() {
  wire_.expires_after(shared_.options.request_timeout);
  const Wire::Greeting greeting = co_await wire_.greet();
  // g++ 12 destroys twice what is made amid a co_await, so refusals have names.
  Refusal no_tls{400, "this port speaks https: begin its URL with https://"};
  if (greeting == Wire::Greeting::kNoTls) co_await refuse(std::move(no_tls));
  co_return greeting == Wire::Greeting::kReady;
}

awaitable<std::optional<Refusal>> Session::read_request(Incoming& incoming) {
  RequestReader::Head& head = incoming.head;
  if (auto refusal = co_await reader_.read_head(head)) co_return refusal;
  head.request.peer = peer_;
  if (!head.has_body) co_return std::nullopt;
  if (!shared_.knows(head.request)) {
    reader_.forget();
    incoming.whole = false;
    co_return std::nullopt;
  }
  does_(Doing::kSending);
  head.request.sink = shared_.sink_for(head.request, head.content_type);
  if (auto refusal = reader_.check_body(head.request.sink != nullptr)) co_return refusal;
  if (auto refusal = co_await agree_to_body(head)) co_return refusal;
  if (head.request.sink) co_return co_await reader_.read_body(*head.request.sink, incoming.whole);
  co_return co_await reader_.read_body(head.request);
}

/// A client may ask before it sends a long body (Expect: 100-continue), and waits for the answer. What is too long was
/// refused before.
awaitable<std::optional<Refusal>> Session::agree_to_body(const RequestReader::Head& head) {
  if (head.expect.empty()) co_return std::nullopt;
  if (!boost::beast::iequals(head.expect, "100-continue"))
    co_return Refusal{417, "'Expect' can only be 100-continue"};
  const bool said = co_await wire_.write("HTTP/1.1 100 Continue\r\n\r\n", shared_.options.request_timeout);
  co_return said ? std::nullopt : std::optional(Refusal{});
}

awaitable<void> Session::refuse(Refusal refusal) {
  reader_.forget();
  if (refusal.status == 0) co_return;
  const std::string body = shared_.error_body(refusal.status, refusal.message);
  ResponseHead head{refusal.status, "application/json", {}, body.size(), false, false};
  if (refusal.status == 503) head.headers.emplace_back("Retry-After", "1");
  const std::string text = wire_text(head) + body;
  co_await wire_.write(text, std::chrono::seconds(5));
  co_await wire_.let_client_read();
}

/// Reads while an answer is awaited. What comes is the beginning of the next request, or the client leaves: in TLS the
/// one cannot be told from the other without reading.
void Session::read_ahead(const std::shared_ptr<Pending>& pending) {
  reading_ahead_ = true;
  if (reader_.unread().size() >= kReadAheadMax) return look_for_end(pending);
  const auto to = reader_.unread().prepare(kReadAhead);
  wire_.read_beside(static_cast<char*>(to.data()), to.size(), [this, pending](error_code error, size_t bytes) {
    reader_.unread().commit(bytes);
    if (!error && !answered_) return read_ahead(pending);
    ended_reading_ahead();
    if (error && !answered_) pending->client_left();
  });
}

/// As much was read ahead as is kept; a client's end behind it is seen all the same.
void Session::look_for_end(const std::shared_ptr<Pending>& pending) {
  look_.expires_after(kLookEvery);
  look_.async_wait([this, pending](error_code error) {
    const bool left = wire_.client_closed();
    if (!error && !answered_ && !left) return look_for_end(pending);
    ended_reading_ahead();
    if (left && !answered_) pending->client_left();
  });
}

void Session::ended_reading_ahead() {
  reading_ahead_ = false;
  read_ahead_ended_.cancel();
}

awaitable<void> Session::end_read_ahead() {
  error_code ignored;
  wire_.cancel();
  look_.cancel();
  while (reading_ahead_) co_await read_ahead_ended_.async_wait(into(ignored));
}

awaitable<bool> Session::answer(std::shared_ptr<Pending> pending, const RequestReader::Head& head, bool keep_alive) {
  wire_.expires_never();  // of what is read ahead
  error_code error;
  asio::steady_timer wake(wire_.executor(), asio::steady_timer::time_point::max());
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
    keep_alive = keep_alive && !head.http_1_0;  // its end is the connection's
    good = co_await stream_answer(*pending, wake, head, keep_alive);
  } else {
    good = co_await whole_answer(*pending->answer(), head, keep_alive);
  }
  if (!good) pending->client_left();
  answered_ = true;
  co_await end_read_ahead();
  co_return good && keep_alive;
}

/// One to HEAD says how long its body would be, and has none.
awaitable<bool> Session::whole_answer(const Pending::Answer& answer, const RequestReader::Head& head,
                                      bool keep_alive) {
  const uint64_t bytes = answer.source ? answer.source->bytes() : answer.body.size();
  const std::string begin =
      wire_text({answer.status, answer.content_type, answer.headers, bytes, head.http_1_0, keep_alive});
  const auto patience = shared_.options.reader_wait;
  // A short answer goes in one piece.
  if (!head.is_head && !answer.source && bytes <= kReadAheadMax)
    co_return co_await wire_.write(begin + answer.body, patience);
  if (!co_await wire_.write(begin, patience)) co_return false;
  if (head.is_head) co_return true;
  if (answer.source) co_return co_await send_body(*answer.source);
  co_return co_await wire_.write(answer.body, patience);
}

/// Writes the source's bytes. False if either side fails: the connection is of no use then.
awaitable<bool> Session::send_body(BodySource& source) {
  for (uint64_t left = source.bytes(); left > 0;) {
    const auto ready = std::make_shared<Said<std::string>>(wire_.executor());
    source.next(Said<std::string>::teller(ready));
    const std::string piece = co_await ready->wait();
    if (piece.empty() || piece.size() > left) co_return false;
    if (!co_await wire_.write(piece, shared_.options.reader_wait)) co_return false;
    left -= piece.size();
  }
  co_return true;
}

awaitable<bool> Session::stream_answer(Pending& pending, asio::steady_timer& wake, const RequestReader::Head& head,
                                       bool keep_alive) {
  const bool chunks = !head.http_1_0;
  const auto framed = [chunks](const std::string& text) { return chunks ? chunk(text) : text; };
  ResponseHead response{200, "text/event-stream", {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                        std::nullopt, head.http_1_0, keep_alive};
  for (const auto& header : pending.stream_headers()) response.headers.push_back(header);
  std::string out = wire_text(response);
  for (;;) {
    for (const std::string& text : pending.take_text()) out += framed(text);
    const bool last = pending.done() && !pending.has_text();
    if (last && chunks) out += "0\r\n\r\n";
    if (!co_await wire_.write(out, shared_.options.reader_wait)) co_return false;
    out.clear();
    if (last) co_return true;
    if (pending.gone()) co_return false;
    if (pending.has_text() || pending.done()) continue;
    error_code error;
    wake.expires_after(shared_.options.keep_alive_comment);
    co_await wake.async_wait(into(error));
    if (!error) out = framed(": still working\n\n");
  }
}

}  // namespace moestro::orchestrator

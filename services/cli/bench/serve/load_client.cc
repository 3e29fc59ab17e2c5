#include "services/cli/bench/serve/load_client.h"

#include <sys/resource.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <memory>
#include <set>

#include "services/cli/bench/serve/completion_json.h"
#include "services/cli/common/http_client.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/sse.h"

namespace moestro::cli {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::awaitable;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using Steady = std::chrono::steady_clock;
using Ending = RequestRecord::Ending;

constexpr size_t kErrorBodyMax = 64 << 10;
constexpr std::chrono::milliseconds kProgressEvery{200};
constexpr std::chrono::seconds kIdleAsks{10};  ///< servers close connections that are silent for longer

/// use_awaitable with the error in `error` instead of an exception.
auto into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

/// CPU time of this thread in seconds.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Connection {
  explicit Connection(asio::io_context& io) : stream(io) {}
  /// Closed by the server while nothing was asked, or with rubbish to read.
  bool stale() {
    char byte = 0;
    const ssize_t n = ::recv(stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
};
using ConnectionPtr = std::unique_ptr<Connection>;

/// Why a request did not end well; no kind: it did.
struct Failure {
  std::string kind, example;
  bool happened() const { return !kind.empty(); }
};
Failure failure(std::string kind, std::string example) { return {std::move(kind), std::move(example)}; }
/// A timeout, or else `kind`.
Failure failure(std::string kind, const error_code& error) {
  return failure(error == beast::error::timeout ? "no answer in time" : std::move(kind), error.message());
}

class Load {
 public:
  Load(const LoadOptions& options, const std::vector<Arrival>& arrivals,
       const std::function<void(const LoadProgress&)>& progress)
      : o_(options),
        arrivals_(arrivals),
        report_(progress),
        issue_timer_(io_),
        place_(io_),
        progress_timer_(io_),
        signals_(io_) {}

  Result<LoadRun> run();

 private:
  awaitable<void> issue();
  awaitable<void> one(size_t index);
  awaitable<Failure> ask(const std::string& body, RequestRecord& record);
  awaitable<Failure> answer(Connection& c, RequestRecord& record, bool& keep);
  awaitable<Failure> refusal(Connection& c, http::response_parser<http::buffer_body>& parser, RequestRecord& record);
  awaitable<Failure> stream(Connection& c, http::response_parser<http::buffer_body>& parser, RequestRecord& record);
  awaitable<ConnectionPtr> connect(error_code& error);
  awaitable<void> hold_idle(int64_t index);
  awaitable<void> show();
  http::request<http::string_body> message(http::verb verb, const char* path, std::string body) const;
  void take_piece(RequestRecord& record);
  void note(Ending ending, RequestRecord& record, const Failure& why);
  void stop();
  void end_if_done();
  double now() const { return std::chrono::duration<double>(Steady::now() - begin_).count(); }

  const LoadOptions& o_;
  const std::vector<Arrival>& arrivals_;
  const std::function<void(const LoadProgress&)>& report_;
  asio::io_context io_{1};
  asio::steady_timer issue_timer_, place_, progress_timer_;
  asio::signal_set signals_;
  Tcp::resolver::results_type endpoints_;
  std::vector<ConnectionPtr> kept_;
  std::set<Connection*> open_;  ///< in use: what stop() closes
  Steady::time_point begin_;
  double cpu_begin_ = 0;
  double read_at_ = 0;          ///< when the bytes at hand were read
  size_t issued_ = 0;
  bool stopped_ = false, loading_ = true;
  LoadProgress figures_;
  LoadRun result_;
};

http::request<http::string_body> Load::message(http::verb verb, const char* path, std::string body) const {
  http::request<http::string_body> request(verb, o_.url.base + path, 11);
  for (const auto& [name, value] : request_headers(o_.url, o_.api_key)) request.set(name, value);
  if (verb == http::verb::post) request.set(http::field::content_type, "application/json");
  request.body() = std::move(body);
  request.prepare_payload();
  return request;
}

awaitable<ConnectionPtr> Load::connect(error_code& error) {
  auto c = std::make_unique<Connection>(io_);
  open_.insert(c.get());
  c->stream.expires_after(o_.connect_limit);
  co_await c->stream.async_connect(endpoints_, into(error));
  open_.erase(c.get());
  if (error) co_return nullptr;
  error_code ignored;
  c->stream.socket().set_option(Tcp::no_delay(true), ignored);
  co_return c;
}

/// Sends what is due, in order, each as soon as it is due and a place is free.
awaitable<void> Load::issue() {
  error_code ignored;
  while (!stopped_ && result_.idle_open + result_.idle_lost < o_.idle_connections) {
    issue_timer_.expires_after(std::chrono::milliseconds(5));
    co_await issue_timer_.async_wait(into(ignored));
  }
  begin_ = Steady::now();
  cpu_begin_ = cpu_seconds();
  for (; issued_ < arrivals_.size() && !stopped_; ++issued_) {
    const double due = arrivals_[issued_].due_s;
    if (now() < due) {
      issue_timer_.expires_at(begin_ +
                              std::chrono::duration_cast<Steady::duration>(std::chrono::duration<double>(due)));
      co_await issue_timer_.async_wait(into(ignored));
    }
    ++figures_.due;
    while (!stopped_ && o_.concurrency > 0 && figures_.under_way >= o_.concurrency)
      co_await place_.async_wait(into(ignored));
    if (stopped_) break;
    ++figures_.under_way;
    result_.in_flight_max = std::max(result_.in_flight_max, figures_.under_way);
    asio::co_spawn(io_, one(issued_), asio::detached);
  }
  issued_ = arrivals_.size();
  end_if_done();
}

awaitable<void> Load::one(size_t index) {
  RequestRecord& record = result_.requests[index];
  const std::string body = o_.body(o_, arrivals_[index], index);
  record.ending = Ending::kUnderWay;
  record.sent_s = now();
  const Failure why = co_await ask(body, record);
  if (!stopped_ || !why.happened())
    note(why.kind == "HTTP 429" ? Ending::kRefused : why.happened() ? Ending::kFailed : Ending::kDone, record, why);
  --figures_.under_way;
  place_.cancel_one();
  end_if_done();
}

void Load::note(Ending ending, RequestRecord& record, const Failure& why) {
  record.ending = ending;
  ++figures_.ended;
  if (ending == Ending::kDone) return;
  ++(ending == Ending::kRefused ? figures_.refused : figures_.failed);
  FailureKind& kind = result_.failures[why.kind];
  if (kind.count++ == 0) kind.example = why.example;
}

awaitable<Failure> Load::ask(const std::string& body, RequestRecord& record) {
  ConnectionPtr c;
  while (!c && !kept_.empty()) {
    c = std::move(kept_.back());
    kept_.pop_back();
    if (c->stale()) c.reset();
  }
  error_code error;
  if (!c) c = co_await connect(error);
  if (!c) co_return failure("cannot connect", error.message());
  open_.insert(c.get());
  const auto request = message(http::verb::post, "/v1/completions", body);
  c->stream.expires_after(o_.silence_limit);
  co_await http::async_write(c->stream, request, into(error));
  bool keep = false;
  Failure why = failure("cannot send", error);
  if (!error) why = co_await answer(*c, record, keep);
  open_.erase(c.get());
  if (keep && !stopped_) kept_.push_back(std::move(c));
  co_return why;
}

awaitable<Failure> Load::answer(Connection& c, RequestRecord& record, bool& keep) {
  error_code error;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  c.stream.expires_after(o_.silence_limit);
  co_await http::async_read_header(c.stream, c.buffer, parser, into(error));
  if (error) co_return failure("no answer", error);
  Failure why;
  if (parser.get().result_int() == 200) why = co_await stream(c, parser, record);
  else why = co_await refusal(c, parser, record);
  keep = parser.is_done() && parser.keep_alive();
  co_return why;
}

awaitable<Failure> Load::refusal(Connection& c, http::response_parser<http::buffer_body>& parser,
                                 RequestRecord& record) {
  record.retry_after = parser.get().find(http::field::retry_after) != parser.get().end();
  const std::string kind = "HTTP " + std::to_string(parser.get().result_int());
  std::string body;
  char chunk[4096];
  while (!parser.is_done() && body.size() < kErrorBodyMax) {
    parser.get().body().data = chunk;
    parser.get().body().size = sizeof chunk;
    error_code error;
    co_await http::async_read_some(c.stream, c.buffer, parser, into(error));
    if (error && error != http::error::need_buffer) break;
    body.append(chunk, sizeof chunk - parser.get().body().size);
  }
  co_return failure(kind, error_message(body));
}

void Load::take_piece(RequestRecord& record) {
  ++figures_.tokens;
  ++record.got_tokens;
  if (record.first_s == 0) record.first_s = read_at_;
  else record.gaps_s.push_back(static_cast<float>(read_at_ - record.last_s));
  record.last_s = read_at_;
}

awaitable<Failure> Load::stream(Connection& c, http::response_parser<http::buffer_body>& parser,
                                RequestRecord& record) {
  bool done = false;
  int64_t usage = -1, pieces = 0;
  SseParser events([&](std::string_view data) -> Status {
    if (data == "[DONE]") return done = true, Status::ok();
    MOESTRO_ASSIGN_OR_RETURN(const StreamChunk chunk, read_stream_chunk(data));
    if (chunk.usage_tokens >= 0) usage = chunk.usage_tokens;
    if (chunk.piece || (chunk.ended && pieces == 0)) ++pieces, take_piece(record);
    return Status::ok();
  });
  char bytes[16384];
  while (!parser.is_done()) {
    parser.get().body().data = bytes;
    parser.get().body().size = sizeof bytes;
    error_code error;
    c.stream.expires_after(o_.silence_limit);
    co_await http::async_read_some(c.stream, c.buffer, parser, into(error));
    read_at_ = now();
    const Status status = events.feed({bytes, sizeof bytes - parser.get().body().size});
    if (!status.is_ok())
      co_return failure(status.code() == Code::kCorrupt ? "no event stream" : "error in a stream", status.message());
    if (error && error != http::error::need_buffer) co_return failure("the stream broke off", error);
  }
  if (usage >= 0) record.got_tokens = static_cast<int32_t>(usage);
  if (!done) co_return failure("the stream broke off", "it ended without [DONE]");
  if (pieces == 0) co_return failure("no text", "the stream had no token");
  co_return Failure();
}

/// A connection without a request of the load, for as long as the load lasts.
awaitable<void> Load::hold_idle(int64_t index) {
  error_code error;
  ConnectionPtr c = co_await connect(error);
  if (!c) {
    ++result_.idle_lost;
    co_return;
  }
  ++result_.idle_open;
  open_.insert(c.get());
  asio::steady_timer timer(io_);
  const auto question = message(http::verb::get, "/health", "");
  for (auto silent = index % kIdleAsks.count(); loading_ && !error; silent = 0) {  // not all in the same second
    http::response<http::string_body> reply;
    c->stream.expires_after(o_.silence_limit);
    co_await http::async_write(c->stream, question, into(error));
    if (!error) co_await http::async_read(c->stream, c->buffer, reply, into(error));
    for (; silent < kIdleAsks.count() && loading_ && !error; ++silent) {
      timer.expires_after(std::chrono::seconds(1));
      co_await timer.async_wait(into(error));
    }
  }
  open_.erase(c.get());
  if (error && loading_) ++result_.idle_lost;
}

awaitable<void> Load::show() {
  error_code error;
  while (loading_) {
    progress_timer_.expires_after(kProgressEvery);
    co_await progress_timer_.async_wait(into(error));
    figures_.seconds = now();
    if (loading_ && report_) report_(figures_);
  }
}

void Load::end_if_done() {
  if (!loading_ || issued_ < arrivals_.size() || figures_.under_way > 0) return;
  loading_ = false;
  result_.seconds = now();
  progress_timer_.cancel();
  error_code ignored;
  signals_.cancel(ignored);
  for (Connection* c : open_) c->stream.close();  // the idle ones
}

/// Nothing more is sent, and what is under way is let go of.
void Load::stop() {
  stopped_ = result_.interrupted = true;
  issue_timer_.cancel();
  place_.cancel();
  for (Connection* c : open_) c->stream.cancel();
  for (Connection* c : open_) c->stream.close();
}

Result<LoadRun> Load::run() {
  error_code error;
  endpoints_ = Tcp::resolver(io_).resolve(o_.url.host, o_.url.port, error);
  if (error) return unavailable("host '" + o_.url.host + "': " + error.message());
  result_.requests.resize(arrivals_.size());
  for (size_t i = 0; i < arrivals_.size(); ++i) {
    RequestRecord& r = result_.requests[i];
    r.due_s = arrivals_[i].due_s, r.prompt_tokens = arrivals_[i].prompt_tokens,
    r.output_tokens = arrivals_[i].output_tokens;
  }
  if (o_.stop_on_signals) {
    signals_.add(SIGINT, error);
    signals_.add(SIGTERM, error);
    signals_.async_wait([this](error_code cancelled, int) {
      if (!cancelled) stop();
    });
  }
  place_.expires_at(Steady::time_point::max());
  begin_ = Steady::now();
  for (int64_t i = 0; i < o_.idle_connections; ++i) asio::co_spawn(io_, hold_idle(i), asio::detached);
  asio::co_spawn(io_, show(), asio::detached);
  asio::co_spawn(io_, issue(), asio::detached);
  io_.run();
  if (result_.seconds > 0) result_.busy_share = (cpu_seconds() - cpu_begin_) / result_.seconds;
  return std::move(result_);
}

}  // namespace

Result<LoadRun> run_load(const LoadOptions& options, const std::vector<Arrival>& arrivals,
                         const std::function<void(const LoadProgress&)>& progress) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
  Load load(options, arrivals, progress);
  return load.run();
}

}  // namespace moestro::cli

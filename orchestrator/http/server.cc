#include "orchestrator/http/server.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <algorithm>
#include <chrono>
#include <optional>
#include <unordered_map>
#include <vector>

#include "common/log.h"
#include "orchestrator/http/connection_places.h"
#include "orchestrator/http/said.h"
#include "orchestrator/http/session.h"
#include "orchestrator/http/tls_identity.h"

namespace moestro::orchestrator {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

/// More are closed without a word.
constexpr size_t kTurnedAwayMax = 64;
/// That the rest of the program may have open.
constexpr size_t kOtherDescriptors = 256;
constexpr std::chrono::milliseconds kAcceptPause{50};

/// From a connection that cannot be accepted to the next that can: a line at both ends, however often it is tried.
struct Outage {
  explicit Outage(const std::string& why) {
    log::warn("http: no connection can be accepted: {}; it is tried again every {} ms", why, kAcceptPause.count());
  }
  void over() const {
    const std::chrono::duration<double> lasted = std::chrono::steady_clock::now() - since;
    log::info("http: connections are accepted again, after {:.1f} s and {} failures", lasted.count(), failures);
  }
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  uint64_t failures = 0;
};

Peer peer_of(const tcp::socket& socket) {
  error_code error;
  asio::ip::address address = socket.remote_endpoint(error).address();
  if (error) return {};
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    address = asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  if (address.is_loopback() || address.is_v4()) return {address.to_string(), address.is_loopback()};
  auto bytes = address.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return {asio::ip::make_address_v6(bytes).to_string() + "/64", false};
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpOptions options, Handler handler, std::function<std::string(int, const std::string&)> error_body)
      : shared_(std::move(options), std::move(handler), std::move(error_body)),
        places_(shared_.options.connections_max, shared_.options.connections_local,
                shared_.options.connections_of_one_max),
        acceptor_(io_) {
    shared_.gate_open = [this] { return acceptor_.is_open(); };
  }

  Status open();
  void run() {
    asio::co_spawn(io_, accept(), asio::detached);
    const auto keep = asio::make_work_guard(io_);
    io_.run();
  }
  uint16_t port() const { return acceptor_.local_endpoint().port(); }
  void post(std::function<void()> work) { asio::post(io_, std::move(work)); }
  void close_gate() {
    asio::post(io_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
  }
  bool wait_answered(std::chrono::milliseconds limit) { return shared_.answering.wait_none(limit); }
  void stop() { io_.stop(); }
  void take_uploads(SinkFor sink_for) { shared_.sink_for = std::move(sink_for); }
  void read_bodies_of(std::function<bool(const HttpRequest&)> known) { shared_.knows = std::move(known); }

 private:
  void lay_out_descriptors();
  awaitable<void> accept();
  awaitable<void> serve(tcp::socket socket);

  SessionContext shared_;
  std::unique_ptr<TlsIdentity> identity_;  ///< null: plain HTTP
  ConnectionPlaces places_;
  std::unordered_map<ConnectionPlaces::Id, Session*> sessions_;  ///< that have a place
  ConnectionPlaces::Id last_id_ = 0;
  size_t turned_away_ = 0;  ///< connections that hear that there is no place for them
  // Last, so that coroutines that io_ ends when it goes still find the rest.
  asio::io_context io_{1};
  tcp::acceptor acceptor_;
};

Status HttpServer::Impl::open() {
  const HttpOptions& options = shared_.options;
  if (options.tls) {
    MOESTRO_ASSIGN_OR_RETURN(identity_, TlsIdentity::load(*options.tls));
  }
  error_code error;
  const std::string where = options.host + ":" + std::to_string(options.port);
  const auto address = asio::ip::make_address(options.host == "localhost" ? "127.0.0.1" : options.host, error);
  if (error) return invalid_argument("--http " + where + ": '" + options.host + "' is not an IP address");
  const tcp::endpoint endpoint(address, options.port);
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    return invalid_argument("cannot listen on " + where + ": " + error.message() + "; choose another with --http");
  lay_out_descriptors();
  return Status::ok();
}

/// Asio keeps for ever what it has made to know a descriptor by. Made one by one, amid what connections hold, each of
/// them would keep a page of memory from the system when the connections are gone; made at once they lie together.
void HttpServer::Impl::lay_out_descriptors() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const size_t spare = limit.rlim_cur > kOtherDescriptors ? limit.rlim_cur - kOtherDescriptors : 0;
  std::vector<asio::posix::stream_descriptor> made;
  error_code error;
  while (!error && made.size() < std::min<size_t>(shared_.options.connections_max, spare)) {
    const int event = ::eventfd(0, EFD_CLOEXEC);
    if (event < 0) return;
    made.emplace_back(io_).assign(event, error);
    if (error) ::close(event);
  }
}

awaitable<void> HttpServer::Impl::accept() {
  std::optional<Outage> outage;
  while (acceptor_.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(into(error));
    if (!error) {
      if (outage) outage->over();
      outage.reset();
      asio::co_spawn(io_, serve(std::move(socket)), asio::detached);
    } else if (acceptor_.is_open()) {  // out of descriptors, most likely: let some end
      if (!outage) outage.emplace(error.message());
      ++outage->failures;
      asio::steady_timer pause(io_, kAcceptPause);
      co_await pause.async_wait(into(error));
    }
  }
}

awaitable<void> HttpServer::Impl::serve(tcp::socket socket) {
  const ConnectionPlaces::Id id = ++last_id_;
  const Peer peer = peer_of(socket);
  const ConnectionPlaces::Entry entry = places_.enter(id, peer);
  if (entry.sent_away) sessions_.at(*entry.sent_away)->close();
  Session session(std::move(socket), peer.address, identity_ ? identity_->current() : nullptr, shared_,
                  [this, id](ConnectionPlaces::Doing what) { places_.does(id, what); });
  if (entry.refused) {
    if (turned_away_ >= kTurnedAwayMax) co_return;
    struct Count {
      size_t& n;
      explicit Count(size_t& counter) : n(counter) { ++n; }
      ~Count() { --n; }
    } const count(turned_away_);
    Refusal refusal{503, "too many connections (" + std::to_string(shared_.options.connections_max) + ")"};
    co_return co_await session.turn_away(std::move(refusal));
  }
  struct Place {
    Impl& server;
    ConnectionPlaces::Id id;
    ~Place() {
      server.places_.leave(id);
      server.sessions_.erase(id);
    }
  } const place{*this, id};
  sessions_[id] = &session;
  co_await session.run();
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options, Handler handler,
                                                       std::function<std::string(int, const std::string&)> error_body) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler), std::move(error_body));
  MOESTRO_RETURN_IF_ERROR(impl->open());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;
uint16_t HttpServer::port() const { return impl_->port(); }
void HttpServer::take_uploads(SinkFor sink_for) { impl_->take_uploads(std::move(sink_for)); }
void HttpServer::read_bodies_of(std::function<bool(const HttpRequest&)> known) {
  impl_->read_bodies_of(std::move(known));
}
void HttpServer::run() { impl_->run(); }
void HttpServer::post(std::function<void()> work) { impl_->post(std::move(work)); }
void HttpServer::close_gate() { impl_->close_gate(); }
bool HttpServer::wait_answered(std::chrono::milliseconds limit) { return impl_->wait_answered(limit); }
void HttpServer::stop() { impl_->stop(); }

}  // namespace moestro::orchestrator

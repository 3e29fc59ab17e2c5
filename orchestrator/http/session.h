#pragma once
// One connection: its requests, one after another, and their answers. Coroutines of the server's thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "common/tls/either_stream.h"
#include "orchestrator/http/pending.h"
#include "orchestrator/http/server.h"

namespace moestro::orchestrator {

/// How many requests a handler has whose answers are not out. From any thread.
class Answering {
 public:
  /// Counts one, from its handler to the end of its answer.
  class One {
   public:
    explicit One(Answering& all) : all_(all) { all_.add(1); }
    ~One() { all_.add(-1); }
    One(const One&) = delete;
    One& operator=(const One&) = delete;

   private:
    Answering& all_;
  };
  bool wait_none(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return none_.wait_for(lock, limit, [this] { return count_ == 0; });
  }

 private:
  void add(int n) {
    const std::lock_guard lock(mutex_);
    if ((count_ += n) == 0) none_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

/// What the connections of a server share; outlives them.
struct SessionContext {
  HttpOptions options;
  Handler handler;
  std::function<std::string(int, const std::string&)> error_body;
  SinkFor sink_for = [](const HttpRequest&, const std::string&) { return nullptr; };
  std::function<bool()> gate_open;  ///< a connection takes further requests
  Answering answering;
};

class Session {
 public:
  /// `context`: of TLS; null: none.
  Session(boost::asio::ip::tcp::socket socket, std::shared_ptr<tls::Context> context, SessionContext& shared);

  /// Until the client has had enough, or the gate is closed.
  boost::asio::awaitable<void> run();
  /// Refuses, whatever is asked. `message` outlives it.
  boost::asio::awaitable<void> turn_away(int status, const std::string& message);

 private:
  struct Incoming {
    boost::beast::http::request<boost::beast::http::string_body> request;
    std::shared_ptr<BodySink> sink;
    bool whole = true;  ///< the body has been read to its end
  };

  boost::asio::awaitable<bool> greet();
  boost::asio::awaitable<bool> read_request(Incoming& incoming);
  boost::asio::awaitable<bool> agree_to_body(const boost::beast::http::request<boost::beast::http::string_body>& header);
  boost::asio::awaitable<bool> refuse(boost::system::error_code error, uint64_t body_bytes_max);
  boost::asio::awaitable<bool> refuse(int status, const std::string& message);
  boost::asio::awaitable<bool> answer(std::shared_ptr<Pending> pending, bool keep_alive, bool head);
  boost::asio::awaitable<bool> whole_answer(const Pending::Answer& answer, bool keep_alive, bool head);
  boost::asio::awaitable<bool> stream_answer(Pending& pending, boost::asio::steady_timer& wake);
  void read_ahead(const std::shared_ptr<Pending>& pending);
  boost::asio::awaitable<void> end_read_ahead();

  SessionContext& shared_;
  tls::EitherStream stream_;
  std::shared_ptr<tls::Context> context_;
  boost::beast::flat_buffer buffer_;           ///< read, not yet looked at
  boost::asio::steady_timer read_ahead_ended_;
  bool reading_ahead_ = false, answered_ = false;
};

}  // namespace moestro::orchestrator

#pragma once
// One connection: its requests, one after another, and their answers. Coroutines of the server's thread.

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "orchestrator/http/connection_places.h"
#include "orchestrator/http/pending.h"
#include "orchestrator/http/request_reader.h"
#include "orchestrator/http/server.h"
#include "orchestrator/http/wire.h"

namespace moestro::orchestrator {

/// Counts requests whose answers are not sent yet. From any thread.
class Answering {
 public:
  /// Counts one request, from its handler to the end of its answer.
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
  SessionContext(HttpOptions o, Handler h, std::function<std::string(int, const std::string&)> e)
      : options(std::move(o)), handler(std::move(h)), error_body(std::move(e)) {}
  const HttpOptions options;
  const Handler handler;
  const std::function<std::string(int, const std::string&)> error_body;
  SinkFor sink_for = [](const HttpRequest&, const std::string&) { return nullptr; };
  std::function<bool(const HttpRequest&)> knows = [](const HttpRequest&) { return true; };
  std::function<bool()> gate_open;  ///< whether connections take further requests
  ReadBudgets budgets{options};
  Answering answering;
};

class Session {
 public:
  using Doing = ConnectionPlaces::Doing;
  /// `does` is told what the connection is doing. `context`: for TLS; null: none.
  Session(boost::asio::ip::tcp::socket socket, std::string peer,
          std::shared_ptr<boost::asio::ssl::context> context, SessionContext& shared, std::function<void(Doing)> does);

  /// Serves until the client closes the connection, or the gate is closed.
  boost::asio::awaitable<void> run();
  /// Refuses any request.
  boost::asio::awaitable<void> turn_away(Refusal refusal);
  /// Ends run() at once. Only while there is no running answer.
  void close() { wire_.close(); }

 private:
  struct Incoming {
    RequestReader::Head head;
    bool whole = true;  ///< the body has been read to its end
  };

  boost::asio::awaitable<bool> greet();
  boost::asio::awaitable<std::optional<Refusal>> read_request(Incoming& incoming);
  boost::asio::awaitable<std::optional<Refusal>> agree_to_body(const RequestReader::Head& head);
  boost::asio::awaitable<void> refuse(Refusal refusal);
  boost::asio::awaitable<bool> answer(std::shared_ptr<Pending> pending, const RequestReader::Head& head,
                                      bool keep_alive);
  boost::asio::awaitable<bool> whole_answer(const Pending::Answer& answer, const RequestReader::Head& head,
                                            bool keep_alive);
  boost::asio::awaitable<bool> send_body(BodySource& source);
  boost::asio::awaitable<bool> stream_answer(Pending& pending, boost::asio::steady_timer& wake,
                                             const RequestReader::Head& head, bool keep_alive);
  void read_ahead(const std::shared_ptr<Pending>& pending);
  void look_for_end(const std::shared_ptr<Pending>& pending);
  void ended_reading_ahead();
  boost::asio::awaitable<void> end_read_ahead();

  SessionContext& shared_;
  const std::string peer_;
  const std::function<void(Doing)> does_;
  Wire wire_;
  RequestReader reader_;
  boost::asio::steady_timer read_ahead_ended_, look_;
  bool reading_ahead_ = false, answered_ = false;
};

}  // namespace moestro::orchestrator

#pragma once
// One request and its answer, as handlers see them. Used on the server's thread only.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace moestro::orchestrator {

/// Takes a body in pieces as it arrives.
class BodySink {
 public:
  virtual ~BodySink() = default;
  /// The next piece comes after `taken`, called on the server's thread, perhaps at once. taken(false): no more is
  /// wanted; the handler gets the request as it is and will say why.
  virtual void take(std::string piece, std::function<void(bool more)> taken) = 0;
};

/// Gives a body in pieces as it is sent.
class BodySource {
 public:
  virtual ~BodySource() = default;
  virtual uint64_t bytes() const = 0;
  /// `ready` is called on the server's thread with the next piece, never more than bytes() in all; an empty one: it
  /// cannot go on.
  virtual void next(std::function<void(std::string piece)> ready) = 0;
};

struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< without the query
  std::string body;
  std::string query = {};                    ///< what followed the '?', as it came
  std::shared_ptr<BodySink> sink = nullptr;  ///< has taken the body, which is empty then
  std::string authorization = {}, origin = {};  ///< the headers of these names; empty: not there. X-Api-Key: KEY
                                                ///< without the former is taken for `Bearer KEY`
  std::string request_id = {};     ///< X-Request-Id, likewise
  std::string asked_headers = {};  ///< Access-Control-Request-Headers, likewise
  std::string peer = {};           ///< the address of the client's host
  std::shared_ptr<const void> body_lease = nullptr;  ///< what the body is counted by: goes when the body goes
  std::string owner =
      {};  ///< the name of its API key, or the id of its batch; empty: nobody's. Owners share what is served
  std::string project =
      {};  ///< whose its files, batches and cached prefixes are: its API key's project, or its batch's; empty: nobody's
  bool sees_all = false;  ///< the files and batches of all projects, too
};

using Headers = std::vector<std::pair<std::string, std::string>>;

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// The whole answer. Nothing may follow.
  virtual void respond(int status, const std::string& content_type, std::string body, const Headers& headers = {}) = 0;
  /// The same with status 200 and a body that may be large.
  virtual void respond_from(const std::string& content_type, std::shared_ptr<BodySource> source,
                            const Headers& headers = {}) = 0;
  /// An answer in pieces: begin_stream (status 200, text/event-stream), write..., end_stream. Writes after the client
  /// left are dropped.
  virtual void begin_stream(const Headers& headers = {}) = 0;
  virtual void write(std::string text) = 0;
  virtual void end_stream() = 0;
  /// Whether the client takes a stream more slowly than it is written. What comes then is better kept together and
  /// written when on_drained calls: what is written anyway is kept here, without a bound.
  virtual bool crowded() const { return false; }
  /// Called each time when a stream that was crowded is so no more. Holds nothing that holds this.
  virtual void on_drained(std::function<void()>) {}
  /// Called at most once, if the client goes away before the answer is complete.
  virtual void on_gone(std::function<void()> callback) = 0;
  /// Nobody waits for it at a screen: others go before it.
  virtual bool background() const { return false; }
  /// By which logs, the client and the worker know the request; empty: it has none.
  virtual const std::string& request_id() const {
    static const std::string kNone;
    return kNone;
  }
};

using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;
/// Where the body of a request goes, by its head; null: into HttpRequest::body.
using SinkFor = std::function<std::shared_ptr<BodySink>(const HttpRequest& head, const std::string& content_type)>;

}  // namespace moestro::orchestrator

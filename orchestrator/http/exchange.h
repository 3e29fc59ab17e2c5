#pragma once
// One request and its answer, for handlers. Server's thread only.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace moestro::orchestrator {

/// Takes a body in pieces as it arrives.
class BodySink {
 public:
  virtual ~BodySink() = default;
  /// The next piece comes after `taken` is called, on the server's thread, perhaps at once. taken(false): no more
  /// pieces are wanted; the handler gets the request and says why.
  virtual void take(std::string piece, std::function<void(bool more)> taken) = 0;
};

/// Gives a body in pieces as it is sent.
class BodySource {
 public:
  virtual ~BodySource() = default;
  virtual uint64_t bytes() const = 0;
  /// `ready` is called on the server's thread with the next piece. All pieces are at most bytes(). An empty piece: the
  /// source cannot continue.
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
  std::shared_ptr<const void> body_lease = nullptr;  ///< the body's part of the memory budget; freed with the body
  std::string owner =
      {};  ///< the name of its API key, or the id of its batch; empty: none. Owners share the server
  std::string project =
      {};  ///< the project of its files, batches and cached prefixes, from its API key or its batch; empty: none
  bool sees_all = false;  ///< it also sees the files and batches of all projects

  /// The project whose files, batches and responses it sees; nullopt: all.
  std::optional<std::string> scope() const { return sees_all ? std::nullopt : std::optional(project); }
};

using Headers = std::vector<std::pair<std::string, std::string>>;

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// Sends the whole answer. Nothing may follow.
  virtual void respond(int status, const std::string& content_type, std::string body, const Headers& headers = {}) = 0;
  /// The same with status 200 and a body that may be large.
  virtual void respond_from(const std::string& content_type, std::shared_ptr<BodySource> source,
                            const Headers& headers = {}) = 0;
  /// An answer in pieces: begin_stream (status 200, text/event-stream), write..., end_stream. Writes after the client
  /// left are dropped.
  virtual void begin_stream(const Headers& headers = {}) = 0;
  virtual void write(std::string text) = 0;
  virtual void end_stream() = 0;
  /// Whether the client reads a stream more slowly than it is written. The handler should then collect its text and
  /// write it when on_drained calls. Text that is written nevertheless is kept here, without a bound.
  virtual bool crowded() const { return false; }
  /// The callback is called each time a stream is no longer crowded. It must not own this object.
  virtual void on_drained(std::function<void()>) {}
  /// The callback is called at most once, if the client leaves before the answer is complete.
  virtual void on_gone(std::function<void()> callback) = 0;
  /// True for work in the background: other requests go first.
  virtual bool background() const { return false; }
  /// The id of the request in logs, for the client and for the worker; empty: none.
  virtual const std::string& request_id() const {
    static const std::string kNone;
    return kNone;
  }
};

/// Hands everything on; a derived one overrides what it changes.
class ForwardingExchange : public Exchange {
 public:
  explicit ForwardingExchange(std::shared_ptr<Exchange> inner) : inner_(std::move(inner)) {}

  void respond(int status, const std::string& content_type, std::string body, const Headers& headers) override {
    inner_->respond(status, content_type, std::move(body), headers);
  }
  void respond_from(const std::string& content_type, std::shared_ptr<BodySource> source,
                    const Headers& headers) override {
    inner_->respond_from(content_type, std::move(source), headers);
  }
  void begin_stream(const Headers& headers) override { inner_->begin_stream(headers); }
  void write(std::string text) override { inner_->write(std::move(text)); }
  void end_stream() override { inner_->end_stream(); }
  bool crowded() const override { return inner_->crowded(); }
  void on_drained(std::function<void()> callback) override { inner_->on_drained(std::move(callback)); }
  void on_gone(std::function<void()> callback) override { inner_->on_gone(std::move(callback)); }
  bool background() const override { return inner_->background(); }
  const std::string& request_id() const override { return inner_->request_id(); }

 protected:
  const std::shared_ptr<Exchange> inner_;
};

using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;
/// Chooses where the body of a request goes, by its head; null: into HttpRequest::body.
using SinkFor = std::function<std::shared_ptr<BodySink>(const HttpRequest& head, const std::string& content_type)>;

}  // namespace moestro::orchestrator

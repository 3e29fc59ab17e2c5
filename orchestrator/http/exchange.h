#pragma once
// One request and its answer, as handlers see them. Used on the server's thread only.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace moestro::orchestrator {

struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< without the query
  std::string body;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

class Exchange {
 public:
  virtual ~Exchange() = default;
  /// The whole answer. Nothing may follow.
  virtual void respond(int status, const std::string& content_type, std::string body, const Headers& headers = {}) = 0;
  /// An answer in pieces: begin_stream (status 200, text/event-stream), write..., end_stream. Writes after the client left are dropped.
  virtual void begin_stream() = 0;
  virtual void write(std::string text) = 0;
  virtual void end_stream() = 0;
  /// Called at most once, if the client goes away before the answer is complete.
  virtual void on_gone(std::function<void()> callback) = 0;
};

using Handler = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;

}  // namespace moestro::orchestrator

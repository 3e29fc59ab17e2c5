#pragma once
// Other APIs over OpenAI's: their requests become OpenAI's bodies, and OpenAI's answers become theirs. No I/O.

#include <functional>
#include <memory>
#include <string>

#include "orchestrator/api/completion_request.h"

namespace moestro::orchestrator {

/// Turns the answer to one request. A whole answer is read_whole() and then whole(); a stream is chunk() for each of
/// OpenAI's chunks, and then end() or failed(). Used by one thread at a time.
class AnswerTranslator {
 public:
  virtual ~AnswerTranslator() = default;
  virtual void read_whole(const RequestJson& answer) = 0;
  /// The body of the answer.
  virtual std::string whole() = 0;
  /// The events that a chunk makes; may be none.
  virtual std::string chunk(const RequestJson& chunk) = 0;
  virtual std::string end() = 0;
  /// The stream ends with an error.
  virtual std::string failed(const ApiError& error) = 0;
  /// Called when all is known, before whole() or end(); they come when `then` is called.
  virtual void settle(std::function<void()> then) { then(); }
};

/// A request that was read.
struct Translated {
  OpenAiRequest request;
  std::unique_ptr<AnswerTranslator> answer;
};

/// The body of an error in a dialect's shape. `request_id` may be empty.
using ErrorBody = std::string (*)(const ApiError& error, const std::string& request_id);

}  // namespace moestro::orchestrator

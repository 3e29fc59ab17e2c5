#pragma once
// Answers of chats in the shapes of OpenAI's Responses API.

#include <functional>
#include <string>

#include "orchestrator/dialects/dialect.h"
#include "orchestrator/dialects/dialect_text.h"

namespace moestro::orchestrator {

/// What a response is beside what the model says.
struct ResponsesFrame {
  std::string id;
  int64_t created_unix_s = 0;
  RequestJson shown;  ///< of its request
  RequestJson input;  ///< all items that the model was given
  /// Keeps {"response", "input"}, and says whether it could; null: it is not to be kept.
  std::function<void(RequestJson record, std::function<void(bool kept)> then)> keep;
};

class ResponsesAnswer final : public AnswerTranslator {
 public:
  explicit ResponsesAnswer(ResponsesFrame frame) : frame_(std::move(frame)), stored_(frame_.keep != nullptr) {}

  void read_whole(const RequestJson& answer) override;
  std::string whole() override { return text_of(response(final_status())); }
  std::string chunk(const RequestJson& chunk) override;
  std::string end() override;
  std::string failed(const ApiError& error) override;
  void settle(std::function<void()> then) override;

 private:
  RequestJson response(const char* status) const;
  const char* final_status() const { return end_.reason == "length" ? "incomplete" : "completed"; }
  const char* last_status(const RequestJson& item) const;
  RequestJson usage() const;
  std::string event(const char* type, RequestJson members);
  std::string begin();
  std::string take_delta(const RequestJson& delta);
  std::string open(const std::string& kind, RequestJson item);
  std::string say(const char* type, const std::string& delta);
  std::string say_call(const RequestJson& call);
  std::string close();
  std::string close_part();
  RequestJson part(const std::string& text) const;
  RequestJson place() const;

  ResponsesFrame frame_;
  bool stored_;
  std::string model_;
  ChoiceEnd end_;
  Usage usage_;
  RequestJson output_ = RequestJson::array();
  bool begun_ = false;
  int64_t next_number_ = 0;
  std::string kind_;  ///< of the last item of output_ while it is open: "message", "reasoning" or "call N"; else empty
  std::string said_;  ///< its text or arguments so far
  std::string last_events_;
};

}  // namespace moestro::orchestrator

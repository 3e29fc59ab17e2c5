#pragma once
// Answers of completions in the shapes of llama-server's POST /completion.

#include <chrono>
#include <functional>

#include "orchestrator/dialects/dialect.h"
#include "orchestrator/dialects/dialect_text.h"

namespace moestro::orchestrator {

/// What an answer repeats of its request, and what it is to have.
struct LlamaSettings {
  RequestJson shown = RequestJson::object();  ///< as generation_settings
  std::function<std::string()> prompt;        ///< its text
  bool stream = false, return_tokens = false, probabilities = false, has_stops = false;
};

class LlamaAnswer final : public AnswerTranslator {
 public:
  using Clock = std::chrono::steady_clock;
  /// Times are counted from here.
  explicit LlamaAnswer(LlamaSettings settings, std::function<Clock::time_point()> now = Clock::now)
      : settings_(std::move(settings)), now_(std::move(now)), arrived_(now_()) {}

  void read_whole(const RequestJson& answer) override;
  std::string whole() override { return std::move(text_); }
  std::string chunk(const RequestJson& chunk) override;
  std::string end() override;
  std::string failed(const ApiError& error) override;

 private:
  RequestJson piece(const RequestJson& choice);
  void finish(RequestJson& answer) const;
  RequestJson timings() const;

  const LlamaSettings settings_;
  const std::function<Clock::time_point()> now_;
  const Clock::time_point arrived_;
  std::string text_;  ///< of a whole answer
  std::string model_;
  ChoiceEnd end_;
  Usage usage_;
  Clock::time_point first_token_{}, last_token_{};  ///< of a stream
};

}  // namespace moestro::orchestrator

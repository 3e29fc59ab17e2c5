#pragma once
// One completion request under way, from its sequences' submission to the last byte of the answer. Lives on the
// server's thread.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "orchestrator/api/answer.h"
#include "orchestrator/api/completion_line.h"
#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/constraints.h"
#include "orchestrator/api/reading_pool.h"
#include "orchestrator/api/request_metrics.h"
#include "orchestrator/api/served_model.h"
#include "orchestrator/control/control_plane.h"
#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

/// What a completion needs of its surroundings; all outlive it.
struct CompletionContext {
  const ServedModel& model;
  ControlPlane& control;
  RequestMetrics& metrics;
  std::function<void(std::function<void()>)> post;  ///< onto the server's thread
  ReadingPool& pool;    ///< for what would keep the server's thread
  int64_t context_max;  ///< the model's own
  std::optional<double> mixed_warn_share = {};  ///< ServiceOptions
};

/// Takes what a sequence reports to `take` on the server's thread. Other threads drop sinks, so `take` must not own the
/// request.
Sink posted_sink(const CompletionContext& context, std::function<void(SequenceEvent)> take);

class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(const CompletionContext& context, AnswerFrame frame, CompletionRequest request,
             std::vector<TokenizedPrompt> prompts, Constraint constraint, uint64_t seed,
             std::shared_ptr<Exchange> exchange);

  ~Completion();

  /// Submits the sequences. The answer, an error included, goes to the exchange.
  void start();

 private:
  using Line = CompletionLine;

  SequenceRequest sequence_request(Line& line) const;
  int score_top(const Line& line) const;
  void on_event(size_t index, SequenceEvent event);
  void on_progress(Line& line, Progress& progress);
  void measure(Line& line, size_t tokens);
  void end_line(Line& line, bool stopped);
  void stream_line(Line& line);
  void write_chunk(nlohmann::json choice);
  void show();
  void stream_open();
  nlohmann::json choice_head(const Line& line, size_t index) const;
  nlohmann::json whole_choice(Line& line, size_t index) const;
  std::vector<Line*> returned_of(size_t first) const;
  Headers headers() const;
  Headers whole_headers() const;
  void finish();
  std::string answer_text();
  void fail(const Status& error, bool quarantined = false);
  void cancel_all();
  int64_t prompt_tokens() const;
  int64_t cached_tokens() const;
  int64_t completion_tokens() const;
  CopyCounts copies() const;

  const CompletionContext& context_;
  const AnswerFrame frame_;
  const CompletionRequest request_;
  const std::vector<TokenizedPrompt> prompts_;
  const Constraint constraint_;
  const uint64_t seed_;
  const std::shared_ptr<Exchange> exchange_;
  const std::chrono::steady_clock::time_point arrived_ = std::chrono::steady_clock::now();
  std::vector<std::unique_ptr<Line>> lines_;
  size_t open_lines_ = 0;
  bool streaming_ = false;  ///< the header of a stream is out: errors follow as events
  bool over_ = false;
};

}  // namespace moestro::orchestrator

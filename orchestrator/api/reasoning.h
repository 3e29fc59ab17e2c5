#pragma once
// Parts what a model says into its reasoning and its answer, as it says it.

#include <string>
#include <string_view>
#include <utility>

#include "orchestrator/api/reasoning_style.h"

namespace moestro::orchestrator {

/// An answer begins with reasoning, or has none: a marker further on is text. White space around markers is dropped.
class ReasoningParser {
 public:
  /// `open`: the prompt has begun the reasoning already.
  ReasoningParser(ReasoningStyle style, bool open)
      : style_(std::move(style)), place_(open ? Place::kReasoning : Place::kBegin) {}

  /// Takes text; what it makes certain is in take_reasoning() and take_content().
  void push(std::string_view text);
  /// No more text comes.
  void finish();

  std::string take_reasoning() { return std::exchange(reasoning_, {}); }
  std::string take_content() { return std::exchange(content_, {}); }

 private:
  enum class Place { kBegin, kReasoning, kAfter, kContent };
  void read_begin();
  void read_reasoning();
  void read_after();
  void say(std::string_view text);

  const ReasoningStyle style_;
  Place place_;
  std::string rest_;  ///< not certain yet
  bool said_ = false; ///< some reasoning has been given out
  std::string reasoning_, content_;
};

}  // namespace moestro::orchestrator

#pragma once
// Parts what a model says into its reasoning and its answer, as it says it.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchestrator/forms/reasoning_style.h"

namespace moestro::orchestrator {

struct ReasonedText {
  bool reasoning = false;  ///< else it is of the answer
  std::string text;
};

/// An answer begins with reasoning, or has none: a marker further on is text. White space around markers is dropped.
/// Or it is messages in channels, each with a head: `analysis` is reasoning, all others are the answer. A text without
/// a head, as when the prompt has begun the answer, is the answer.
class ReasoningParser {
 public:
  /// `open`: the prompt has begun the reasoning already. `calls`: messages to functions are handed on as the content's
  /// calls, with heads that HarmonyForm reads.
  ReasoningParser(ReasoningStyle style, bool open, bool calls = false)
      : style_(std::move(style)),
        calls_(calls),
        place_(open                             ? Place::kReasoning
               : style_.channel_tokens.empty() ? Place::kBegin
                                               : Place::kHead) {}

  /// Takes text; what it makes certain is in take().
  void push(std::string_view text);
  /// No more text comes.
  void finish();

  /// In the model's order: only in channels does reasoning follow text of the answer.
  std::vector<ReasonedText> take() { return std::exchange(said_texts_, {}); }

 private:
  /// kHead, kMessage, kCall: of an answer in channels; kMessage is one of the answer's, kCall one to a function.
  enum class Place { kBegin, kReasoning, kAfter, kAnswer, kContent, kHead, kMessage, kCall };
  void read_channels();
  bool read_head();
  bool read_message();
  bool read_body();
  bool head_is_text() const;
  void begin_message(std::string_view head);
  void read_begin();
  void read_reasoning();
  void read_after();
  void read_answer();
  void say(std::string_view text);
  void add(bool reasoning, std::string_view text);

  const ReasoningStyle style_;
  const bool calls_;
  Place place_;
  std::string rest_;  ///< not certain yet
  bool said_ = false; ///< some reasoning has been given out
  bool answer_said_ = false;  ///< some of the answer between its markers has been given out
  bool answered_ = false;     ///< all of it
  bool apart_ = false;  ///< more reasoning would be another message
  std::vector<ReasonedText> said_texts_;
};

}  // namespace moestro::orchestrator

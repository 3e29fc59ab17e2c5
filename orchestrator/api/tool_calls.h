#pragma once
// Finds tool calls in what a model says, as it says it.

#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/api/tool_style.h"

namespace moestro::orchestrator {

/// A piece of a call: the first has the name, all of them together the arguments' JSON text.
struct ToolCallDelta {
  size_t index = 0;  ///< of the call in the answer
  bool begins = false;
  std::string name;
  std::string arguments;
};

/// What looks like the beginning of a call and turns out to be none is content. White space around calls is not.
class ToolCallParser {
 public:
  explicit ToolCallParser(ToolStyle style) : style_(std::move(style)) {}

  /// Takes text; what it makes certain is in take_content() and take_calls().
  void push(std::string_view text);
  /// No more text comes.
  void finish();

  std::string take_content();
  std::vector<ToolCallDelta> take_calls();
  size_t calls() const { return calls_; }

 private:
  enum class Place { kContent, kBeforeCall, kCall, kAfterCall };
  bool step();
  bool content_step();
  bool before_call_step();
  bool call_step();
  bool after_call_step();
  bool end_of_call();
  void no_call();
  void value_done(std::string_view value);
  void say_arguments(std::string_view text);

  const ToolStyle style_;
  Place place_ = Place::kContent;
  std::string rest_;     ///< not looked at yet, or not certain
  std::string raw_;      ///< of the call under way, its marker included: content if it is none
  std::string content_, white_;  ///< white_: follows content_ if more content does
  std::vector<ToolCallDelta> deltas_;
  size_t calls_ = 0;
  bool first_in_list_ = true;
  // Of the object under way.
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, in_value_ = false;
  std::string key_, value_;
  size_t said_ = 0;      ///< bytes of the arguments that have been given out
  std::string early_;    ///< arguments that came before the name
  bool named_ = false, has_arguments_ = false;
};

}  // namespace moestro::orchestrator

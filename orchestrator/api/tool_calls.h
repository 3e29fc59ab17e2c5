#pragma once
// Finds tool calls in what a model says, as it says it.

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orchestrator/api/tool_arguments.h"
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
  virtual ~ToolCallParser() = default;
  ToolCallParser(const ToolCallParser&) = delete;
  ToolCallParser& operator=(const ToolCallParser&) = delete;

  /// Takes text; what it makes certain is in take_content() and take_calls().
  void push(std::string_view text);
  /// No more text comes.
  virtual void finish() = 0;

  std::string take_content() { return std::exchange(content_, {}); }
  std::vector<ToolCallDelta> take_calls() { return std::exchange(deltas_, {}); }
  size_t calls() const { return calls_; }

 protected:
  /// True if more can be read of rest_.
  virtual bool step() = 0;
  /// Looks for the marker, which begins raw_ then; true if it was found.
  bool find_begin();
  /// What began like a call is content; what follows it is still in rest_.
  void no_call();
  /// The end of a text that is in no call.
  void finish_content();
  void begin_call(std::string name);
  void say_arguments(std::string text);

  const ToolStyle style_;
  std::string rest_;  ///< not looked at yet, or not certain
  std::string raw_;   ///< of the call under way, its marker included: content if it is none
  void add_content(std::string_view text) { content_ += text; }

 private:
  std::string content_, white_;  ///< white_: follows content_ if more content does
  std::vector<ToolCallDelta> deltas_;
  size_t calls_ = 0;
};

/// `arguments` are needed for calls between tags, and outlive the parser.
std::unique_ptr<ToolCallParser> make_tool_call_parser(const ToolStyle& style, const ToolArguments& arguments);

}  // namespace moestro::orchestrator

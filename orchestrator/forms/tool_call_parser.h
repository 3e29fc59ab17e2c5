#pragma once
// Finds tool calls in what a model says, as it says it.

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace moestro::orchestrator {

/// A piece of a call: the first has the name, all of them together the arguments' JSON text.
struct ToolCallDelta {
  size_t index = 0;  ///< of the call in the answer
  bool begins = false;
  std::string name;
  std::string arguments;
  std::string id;  ///< as the model wrote it; empty: its form has none
};

/// What an answer says next: text, or a piece of a call.
using AnswerPiece = std::variant<std::string, ToolCallDelta>;

/// What looks like the beginning of a call and turns out to be none is content. White space around calls is not.
class ToolCallParser {
 public:
  /// `begin`: what begins a call, or some calls; not empty.
  explicit ToolCallParser(std::string begin) : begin_(std::move(begin)) {}
  virtual ~ToolCallParser() = default;
  ToolCallParser(const ToolCallParser&) = delete;
  ToolCallParser& operator=(const ToolCallParser&) = delete;

  /// Ids of past calls, which new calls do not get. Forms whose ids need not differ ignore them.
  virtual void avoid_ids(std::set<std::string>) {}
  /// Takes text; what it makes certain is in take().
  void push(std::string_view text);
  /// No more text comes.
  virtual void finish() = 0;

  /// Text and calls in the model's order.
  std::vector<AnswerPiece> take() { return std::exchange(said_, {}); }
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
  void begin_call(std::string name, std::string id = "");
  void say_arguments(std::string text);
  /// Drops white space at the beginning of rest_; false if nothing is left.
  bool skip_white();
  /// Whether a name at the beginning of rest_, white space around it included, cannot be one. `end`: where the mark
  /// behind it stands, npos: not there yet; `mark_bytes`: of that mark. It does not depend on how the text was cut.
  bool is_too_long(size_t end, size_t mark_bytes, size_t bytes_max = 256) const {
    return (end == std::string::npos ? rest_.size() - std::min(rest_.size(), mark_bytes - 1) : end) > bytes_max;
  }
  /// Moves the first bytes of rest_ to raw_.
  void keep_raw(size_t bytes);
  void add_content(std::string_view text);

  std::string rest_;  ///< not looked at yet, or not certain
  std::string raw_;   ///< of the call under way, its marker included: content if it is none

 private:
  const std::string begin_;
  std::string white_;  ///< follows the content so far if more content does
  std::vector<AnswerPiece> said_;
  size_t calls_ = 0;
};

}  // namespace moestro::orchestrator

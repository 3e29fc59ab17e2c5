#pragma once
// How a family of models writes tool calls: how they begin, how they are read as they come, and what they may be.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "orchestrator/forms/tool_arguments.h"
#include "orchestrator/forms/tool_call_parser.h"
#include "orchestrator/grammar/byte_grammar.h"
#include "orchestrator/grammar/markers.h"

namespace moestro::orchestrator {

/// What stands around the calls of an answer.
struct CallFrame {
  std::string begin;              ///< of the first call
  std::string lead;               ///< behind it
  std::vector<std::string> next;  ///< any of them stands between two calls; empty: an answer has one call
  std::string tail;               ///< behind the last call
  bool section = false;           ///< all calls stand behind one `begin`; otherwise `next` has one for each
};

/// Immutable; any thread.
class ToolForm {
 public:
  /// Adds any of the functions that may be called.
  using AddFunction = std::function<Result<grammar::NodeId>(grammar::ByteGrammar&, grammar::NodeId)>;

  ToolForm(std::string name, CallFrame frame) : name_(std::move(name)), frame_(std::move(frame)) {}
  virtual ~ToolForm() = default;
  ToolForm(const ToolForm&) = delete;
  ToolForm& operator=(const ToolForm&) = delete;

  /// As docs/api.md names it.
  const std::string& name() const { return name_; }
  const CallFrame& frame() const { return frame_; }

  /// Tokens that the text must have for a call to be seen, even if they are special.
  virtual std::vector<std::string> tokens() const = 0;
  /// What shows in free text that a call has begun: the grammar holds behind it. Empty: calls begin like other text.
  virtual std::vector<grammar::Marker> begins() const { return {{frame_.begin}}; }
  /// Whether ids of calls are `functions.NAME:NUMBER`, in the model's text and in the history.
  virtual bool ids_have_names() const { return false; }
  /// The field of a past message in which its templates look for reasoning.
  virtual const char* reasoning_field() const { return "reasoning_content"; }
  /// `tools` outlive the parser.
  virtual std::unique_ptr<ToolCallParser> parser(const ToolArguments& tools) const = 0;
  /// One call of `function`, without what stands around it. What its schema wants beyond what can be promised is
  /// refused by name, or goes into `passed_over` if that is given.
  virtual Result<grammar::NodeId> add_call(grammar::ByteGrammar& g, grammar::NodeId from,
                                           const grammar::SchemaJson& function,
                                           std::vector<std::string>* passed_over) const = 0;

  /// The calls of an answer. `begun`: what begins them has been said; then other text may follow, and more calls.
  Result<grammar::NodeId> add_calls(grammar::ByteGrammar& g, grammar::NodeId from, bool begun, bool many,
                                    const AddFunction& add_function) const;

 private:
  const std::string name_;
  const CallFrame frame_;
};

/// A function's arguments as a JSON object: any, or one that satisfies its parameters.
Result<grammar::NodeId> add_json_arguments(grammar::ByteGrammar& g, grammar::NodeId from,
                                           const grammar::SchemaJson& function, std::vector<std::string>* passed_over);
/// Null: they are any object.
const grammar::SchemaJson* parameters_of(const grammar::SchemaJson& function);

}  // namespace moestro::orchestrator

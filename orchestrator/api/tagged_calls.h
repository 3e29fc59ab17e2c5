#pragma once
// Calls that are a name and tagged arguments (GLM-4.5): NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>...

#include "orchestrator/api/tool_calls.h"
#include "orchestrator/grammar/tagged_arguments.h"

namespace moestro::orchestrator {

/// A name that is none of the tools' is no call. If the text of a call goes wrong behind its name, its arguments stay
/// unfinished, and what follows is content.
class TaggedCallParser final : public ToolCallParser {
 public:
  TaggedCallParser(ToolStyle style, const ToolArguments& tools) : ToolCallParser(std::move(style)), tools_(tools) {}
  void finish() override;

 private:
  enum class Place { kContent, kName, kArgument, kText, kValue };
  bool step() override;
  bool read_name();
  bool read_argument();
  bool read_text();
  bool read_value();
  /// Drops white space at the beginning of rest_; false if nothing is left.
  bool skip_white();
  bool end_value(size_t at);

  const ToolArguments& tools_;
  const grammar::ArgumentTags tags_;
  Place place_ = Place::kContent;
  // Of the call under way.
  const std::map<std::string, grammar::TaggedValue>* values_ = nullptr;
  grammar::TaggedValue value_;
  bool first_ = true;
  size_t scanned_ = 0;  ///< bytes of rest_ in which the value does not end
  bool in_string_ = false, escaped_ = false;
};

}  // namespace moestro::orchestrator

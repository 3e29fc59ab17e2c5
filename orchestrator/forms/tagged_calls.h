#pragma once
// Reads calls whose arguments stand between tags (tagged_form.h).

#include "orchestrator/forms/tagged_form.h"

namespace moestro::orchestrator {

/// A name that is none of the tools' is no call. If the text of a call goes wrong behind its name, its arguments stay
/// unfinished, and what follows is content.
class TaggedCallParser final : public ToolCallParser {
 public:
  TaggedCallParser(const CallTags& tags, const ToolArguments& tools)
      : ToolCallParser(tags.section_begin), tags_(tags), tools_(tools) {}
  void finish() override;

 private:
  enum class Place { kContent, kBeforeCall, kName, kArgument, kText, kValue };
  bool step() override;
  bool read_before_call();
  bool read_name();
  bool read_bare_name();
  bool read_argument();
  bool read_text();
  bool read_value();
  bool none();
  void begin(const std::string& name);
  bool end_call(const std::string& tag);
  bool end_value(size_t at);
  std::string text_of(std::string text, bool last);

  const CallTags tags_;
  const ToolArguments& tools_;
  Place place_ = Place::kContent;
  bool called_ = false;  ///< in this section
  // Of the call under way.
  const std::map<std::string, grammar::TaggedValue>* values_ = nullptr;
  grammar::TaggedValue value_;
  bool first_ = true;
  bool value_begins_ = false;  ///< nothing has been given out of the text under way
  size_t scanned_ = 0;         ///< bytes of rest_ in which the value does not end
  bool in_string_ = false, escaped_ = false;
};

}  // namespace moestro::orchestrator

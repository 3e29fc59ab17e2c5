#pragma once
// Calls whose arguments stand between tags: GLM, Qwen3-Coder, MiniMax-M2, Seed-OSS.

#include "orchestrator/forms/tool_form.h"

namespace moestro::orchestrator {

/// SECTION_BEGIN (CALL_BEGIN NAME NAME_END (KEY_BEGIN KEY KEY_END VALUE_BEGIN VALUE VALUE_END)* CALL_END)* SECTION_END
struct CallTags {
  std::string section_begin, section_end;
  std::string call_begin, name_end, call_end;  ///< all "": the section is one call, and a name ends where a tag begins
  std::string key_begin, key_end;
  std::string value_begin;  ///< may be ""
  std::string value_end;
  bool lines = false;        ///< a value stands on lines of its own: one new line before and behind it is none of it
  bool one_section = false;  ///< several calls stand in one section
};

class TaggedForm final : public ToolForm {
 public:
  TaggedForm(std::string name, CallTags tags);
  std::vector<std::string> tokens() const override;
  std::unique_ptr<ToolCallParser> parser(const ToolArguments& tools) const override;
  Result<grammar::NodeId> add_call(grammar::ByteGrammar& g, grammar::NodeId from, const grammar::SchemaJson& function,
                                   std::vector<std::string>* passed_over) const override;

 private:
  const CallTags tags_;
};

}  // namespace moestro::orchestrator

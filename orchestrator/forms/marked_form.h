#pragma once
// Calls that are a name and a JSON object, with markers around both: DeepSeek, Kimi, newer Mistral, gpt-oss.

#include "orchestrator/forms/tool_form.h"

namespace moestro::orchestrator {

struct CallMarks {
  std::string section_begin, section_end;  ///< "": there are no sections
  std::string call_begin;
  std::string name_begin;       ///< before the name; a model may leave it out
  std::string arguments_begin;  ///< between name and arguments
  std::string arguments_end;    ///< between arguments and the call's end; a model may leave it out
  std::string call_end;         ///< may be ""
  std::string between;          ///< between one call's end and the next one's beginning
  std::string id_begin;         ///< an id may stand between name and arguments, behind this; "": none does
  bool numbered = false;        ///< a name is followed by ':' and the number of the call in the chat
};

class MarkedForm : public ToolForm {
 public:
  MarkedForm(std::string name, CallMarks marks);
  std::vector<std::string> tokens() const override;
  bool ids_have_names() const override { return marks_.numbered; }
  std::unique_ptr<ToolCallParser> parser(const ToolArguments& tools) const override;
  Result<grammar::NodeId> add_call(grammar::ByteGrammar& g, grammar::NodeId from, const grammar::SchemaJson& function,
                                   std::vector<std::string>* passed_over) const override;

 protected:
  MarkedForm(std::string name, CallFrame frame, CallMarks marks);

 private:
  grammar::NodeId add_id(grammar::ByteGrammar& g, grammar::NodeId from) const;
  const CallMarks marks_;
};

}  // namespace moestro::orchestrator

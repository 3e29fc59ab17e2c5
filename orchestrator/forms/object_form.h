#pragma once
// Calls that are JSON objects with a name and arguments: Hermes, Qwen, ERNIE, Granite, Phi-4, Llama, older Mistral.

#include "orchestrator/forms/tool_form.h"

namespace moestro::orchestrator {

struct ObjectMarks {
  std::string begin;      ///< a token; with `bare` it may be left out where the answer begins with the object
  std::string end;        ///< behind a call, or behind a list; "" if nothing
  bool list = false;      ///< the calls are one list of objects
  bool bare = false;      ///< the answer begins with the object, or has none
  std::string arguments = "arguments";  ///< the key that a model is held to; the other one is read as well
};

class ObjectForm final : public ToolForm {
 public:
  ObjectForm(std::string name, ObjectMarks marks);
  std::vector<std::string> tokens() const override;
  std::vector<grammar::Marker> begins() const override;
  std::unique_ptr<ToolCallParser> parser(const ToolArguments& tools) const override;
  Result<grammar::NodeId> add_call(grammar::ByteGrammar& g, grammar::NodeId from, const grammar::SchemaJson& function,
                                   std::vector<std::string>* passed_over) const override;

 private:
  const ObjectMarks marks_;
};

}  // namespace moestro::orchestrator

#include "orchestrator/forms/object_form.h"

#include <nlohmann/json.hpp>

#include "orchestrator/forms/object_calls.h"

namespace moestro::orchestrator {

using grammar::NodeId;

namespace {

constexpr const char* kObjectBegin = "{\"name\": \"";  // names need no escapes

CallFrame frame_of(const ObjectMarks& m) {
  if (m.bare) return {kObjectBegin, "", {std::string("; ") + kObjectBegin}, "", true};
  if (m.list) return {m.begin, "[", {", "}, "]" + m.end, true};
  const std::string end = "\n" + m.end;
  return {m.begin, "\n", {end + "\n" + m.begin + "\n"}, end, false};
}

}  // namespace

ObjectForm::ObjectForm(std::string name, ObjectMarks marks)
    : ToolForm(std::move(name), frame_of(marks)), marks_(std::move(marks)) {}

std::vector<std::string> ObjectForm::tokens() const {
  return marks_.end.empty() ? std::vector{marks_.begin} : std::vector{marks_.begin, marks_.end};
}

std::vector<grammar::Marker> ObjectForm::begins() const {
  if (!marks_.bare) return ToolForm::begins();
  return {{kObjectBegin, /*at_start=*/true}, {marks_.begin + kObjectBegin}};
}

std::unique_ptr<ToolCallParser> ObjectForm::parser(const ToolArguments& tools) const {
  return std::make_unique<ObjectCallParser>(marks_, tools);
}

Result<NodeId> ObjectForm::add_call(grammar::ByteGrammar& g, NodeId from, const grammar::SchemaJson& function,
                                    std::vector<std::string>* passed_over) const {
  const std::string name = function["name"].get<std::string>();
  const NodeId at = g.literal(from, (marks_.bare ? "" : kObjectBegin) + name + "\", \"" + marks_.arguments + "\": ");
  MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add_json_arguments(g, at, function, passed_over));
  return g.literal(end, "}");
}

}  // namespace moestro::orchestrator

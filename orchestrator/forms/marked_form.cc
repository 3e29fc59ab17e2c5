#include "orchestrator/forms/marked_form.h"

#include <nlohmann/json.hpp>

#include "orchestrator/forms/marked_calls.h"

namespace moestro::orchestrator {

using grammar::ByteGrammar;
using grammar::NodeId;

namespace {

constexpr int kNumberDigitsMax = 4;  // of a call in a chat
constexpr int kIdLength = 9;         // Mistral's

CallFrame frame_of(const CallMarks& m) {
  const std::string next = m.call_end + m.between + m.call_begin;
  if (m.section_begin.empty()) return {m.call_begin, "", {next}, m.call_end, false};
  return {m.section_begin, m.call_begin, {next}, m.call_end + m.section_end, true};
}

}  // namespace

MarkedForm::MarkedForm(std::string name, CallMarks marks)
    : ToolForm(std::move(name), frame_of(marks)), marks_(std::move(marks)) {}

MarkedForm::MarkedForm(std::string name, CallFrame frame, CallMarks marks)
    : ToolForm(std::move(name), std::move(frame)), marks_(std::move(marks)) {}

std::vector<std::string> MarkedForm::tokens() const {
  std::vector<std::string> all{marks_.section_begin, marks_.section_end, marks_.call_begin,
                               marks_.arguments_begin, marks_.call_end,  marks_.id_begin};
  // "function<sep>" is a word and a token.
  const size_t token = marks_.name_begin.find('<');
  if (token != std::string::npos) all.push_back(marks_.name_begin.substr(token));
  std::erase(all, "");
  return all;
}

std::unique_ptr<ToolCallParser> MarkedForm::parser(const ToolArguments&) const {
  return std::make_unique<MarkedCallParser>(marks_);
}

/// A number, or an id of letters and digits, which may be left out.
NodeId MarkedForm::add_id(ByteGrammar& g, NodeId from) const {
  const NodeId end = g.add();
  if (!marks_.numbered) g.empty(from, end);
  const int most = marks_.numbered ? kNumberDigitsMax : kIdLength;
  NodeId at = g.literal(from, marks_.numbered ? ":" : marks_.id_begin);
  for (int i = 1; i <= most; ++i) {
    const NodeId next = g.add();
    g.byte(at, next, '0', '9');
    if (!marks_.numbered) g.byte(at, next, 'a', 'z'), g.byte(at, next, 'A', 'Z');
    if (marks_.numbered || i == most) g.empty(next, end);
    at = next;
  }
  return end;
}

Result<NodeId> MarkedForm::add_call(ByteGrammar& g, NodeId from, const grammar::SchemaJson& function,
                                    std::vector<std::string>* passed_over) const {
  NodeId at = g.literal(from, marks_.name_begin + function["name"].get<std::string>());
  if (marks_.numbered || !marks_.id_begin.empty()) at = add_id(g, at);
  MOESTRO_ASSIGN_OR_RETURN(
      const NodeId end, add_json_arguments(g, g.literal(at, marks_.arguments_begin), function, passed_over));
  return g.literal(end, marks_.arguments_end);
}

}  // namespace moestro::orchestrator

#include "orchestrator/forms/tagged_form.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "orchestrator/forms/tagged_calls.h"
#include "orchestrator/grammar/tagged_arguments.h"

namespace moestro::orchestrator {

using grammar::NodeId;

namespace {

CallFrame frame_of(const CallTags& t) {
  if (t.call_begin.empty()) {
    const std::string next = t.section_end + "\n" + t.section_begin;
    return {t.section_begin, "", {next, t.section_end + t.section_begin}, t.section_end, false};
  }
  const std::string end = "\n" + t.section_end;
  if (t.one_section) return {t.section_begin, "\n", {"\n"}, end, true};
  return {t.section_begin, "\n", {end + "\n" + t.section_begin + "\n"}, end, false};
}

}  // namespace

TaggedForm::TaggedForm(std::string name, CallTags tags)
    : ToolForm(std::move(name), frame_of(tags)), tags_(std::move(tags)) {}

std::vector<std::string> TaggedForm::tokens() const {
  const CallTags& t = tags_;
  std::vector<std::string> all{t.section_begin, t.section_end, t.call_begin,  t.call_end,
                               t.key_begin,     t.key_end,     t.value_begin, t.value_end};
  std::erase(all, "");
  return all;
}

std::unique_ptr<ToolCallParser> TaggedForm::parser(const ToolArguments& tools) const {
  return std::make_unique<TaggedCallParser>(tags_, tools);
}

Result<NodeId> TaggedForm::add_call(grammar::ByteGrammar& g, NodeId from, const grammar::SchemaJson& function,
                                    std::vector<std::string>* passed_over) const {
  const NodeId name = g.literal(from, tags_.call_begin + function["name"].get<std::string>() + tags_.name_end);
  NodeId at = grammar::add_new_line(g, name);
  if (const auto* parameters = parameters_of(function)) {
    const grammar::ArgumentTags tags{tags_.key_begin, tags_.key_end, tags_.value_begin, tags_.value_end, tags_.lines};
    MOESTRO_ASSIGN_OR_RETURN(at, grammar::add_tagged_arguments(g, at, *parameters, tags, passed_over));
  }
  return g.literal(at, tags_.call_end);
}

}  // namespace moestro::orchestrator

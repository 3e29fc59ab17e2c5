#include "orchestrator/api/constraints.h"

#include <algorithm>

#include "orchestrator/grammar/choice_grammar.h"
#include "orchestrator/grammar/gbnf.h"
#include "orchestrator/grammar/json_schema.h"
#include "orchestrator/grammar/pattern.h"
#include "orchestrator/grammar/tagged_arguments.h"

namespace moestro::orchestrator {

using grammar::ByteGrammar;
using grammar::NodeId;

namespace {

constexpr size_t kKeptMax = 32;
constexpr size_t kStatesMax = 50'000;  ///< a grammar that has grown beyond is made anew for new requests

/// Any object, or one that satisfies the function's parameters.
Result<NodeId> add_arguments(ByteGrammar& g, NodeId from, const RequestJson* parameters,
                             std::vector<std::string>* passed_over) {
  if (parameters == nullptr) return grammar::JsonGrammar(g).object(from);
  return grammar::JsonSchemaCompiler(g, *parameters, passed_over).compile(from);
}

/// One function's name and arguments, as the style has them between its markers.
Result<NodeId> add_function(ByteGrammar& g, NodeId from, const RequestJson& function, const ToolStyle& style,
                            std::vector<std::string>* passed_over) {
  const auto found = function.find("parameters");
  const RequestJson* parameters = found == function.end() || found->is_null() ? nullptr : &*found;
  const RequestJson& name = function["name"];
  switch (style.form) {
    case ToolStyle::Form::kObject: {
      const NodeId at = g.literal(from, "{\"name\": " + name.dump() + ", \"arguments\": ");
      MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add_arguments(g, at, parameters, passed_over));
      return g.literal(end, "}");
    }
    case ToolStyle::Form::kTagged: {
      const NodeId at = grammar::add_new_line(g, g.literal(from, name.get<std::string>()));
      if (parameters == nullptr) return at;
      return grammar::add_tagged_arguments(g, at, *parameters, {}, passed_over);
    }
  }
  return internal_error("a form of calls without a grammar");
}

/// Any of the request's tools, or the one that was chosen. Where the model may call or not, what a schema wants beyond
/// what can be promised goes into `passed_over`, unless the tool is strict.
Result<NodeId> add_call(ByteGrammar& g, NodeId from, const CompletionRequest& request, const ToolStyle& style,
                        std::vector<std::string>& passed_over) {
  const NodeId to = g.add();
  for (const RequestJson& tool : request.tools) {
    const RequestJson& function = tool["function"];
    if (!request.tool_name.empty() && function["name"] != request.tool_name) continue;
    const NodeId at = g.add();
    g.empty(from, at);
    const std::string where = "the function '" + function["name"].get<std::string>() + "': ";
    const bool may_pass = request.tool_choice == ToolChoice::kAuto && function.value("strict", RequestJson()) != true;
    std::vector<std::string> passed;
    const auto end = add_function(g, at, function, style, may_pass ? &passed : nullptr);
    if (!end.is_ok()) return Status(end.status().code(), where + end.status().message());
    for (const std::string& what : passed) passed_over.push_back(where + what);
    g.empty(*end, to);
  }
  return to;
}

/// The calls of an answer, from their first marker on; `triggered`: behind it, and one call or list of calls.
Result<NodeId> add_calls(ByteGrammar& g, NodeId from, const CompletionRequest& request, const ToolStyle& style,
                         bool triggered, std::vector<std::string>& passed_over) {
  const bool many = request.parallel_tool_calls;
  NodeId at = triggered ? from : g.literal(from, style.begin);
  if (style.list) {
    at = g.literal(at, "[");
    const NodeId call = g.add();
    g.empty(at, call);
    MOESTRO_ASSIGN_OR_RETURN(const NodeId end, add_call(g, call, request, style, passed_over));
    if (many) g.empty(g.literal(end, ", "), call);
    return g.literal(end, "]");
  }
  const NodeId call = g.add();
  if (style.form == ToolStyle::Form::kTagged) {
    g.empty(at, call);
    MOESTRO_ASSIGN_OR_RETURN(const NodeId behind, add_call(g, call, request, style, passed_over));
    const NodeId end = g.literal(behind, style.end);
    if (many && !triggered) g.empty(g.literal(grammar::add_new_line(g, end), style.begin), call);
    return end;
  }
  g.empty(g.literal(at, "\n"), call);
  MOESTRO_ASSIGN_OR_RETURN(const NodeId behind, add_call(g, call, request, style, passed_over));
  const NodeId end = g.literal(behind, "\n" + style.end);
  if (many && !triggered) g.empty(g.literal(end, "\n" + style.begin + "\n"), call);
  return end;
}

Result<NodeId> add_format(ByteGrammar& g, NodeId from, const OutputFormat& format) {
  using Kind = OutputFormat::Kind;
  switch (format.kind) {
    case Kind::kText: break;
    case Kind::kJsonObject: return grammar::JsonGrammar(g).object(from);
    case Kind::kJsonSchema: return grammar::JsonSchemaCompiler(g, format.what).compile(from);
    case Kind::kRegex: return grammar::add_regex(g, from, format.what.get_ref<const std::string&>());
    case Kind::kChoice: return grammar::add_choice(g, from, format.what.get<std::vector<std::string>>());
    case Kind::kGrammar: return grammar::add_gbnf(g, from, format.what.get_ref<const std::string&>());
  }
  return internal_error("free text has no grammar");
}

}  // namespace

std::shared_ptr<TokenConstraint> Constraint::begin() const {
  std::shared_ptr<TokenConstraint> text;
  if (triggered)
    text = std::make_shared<grammar::TriggeredConstraint>(triggered);
  else if (grammar)
    text = std::make_shared<grammar::GrammarConstraint>(grammar);
  return rules ? std::make_shared<RuledConstraint>(rules, std::move(text)) : text;
}

std::shared_ptr<const grammar::GrammarVocabulary> Constraints::vocabulary() const {
  const std::lock_guard lock(vocabulary_mutex_);
  if (vocabulary_) return vocabulary_;
  std::vector<std::string> bytes(static_cast<size_t>(model_.vocab));
  const std::vector<std::string> markers = model_.tool_style ? model_.tool_style->tokens() : std::vector<std::string>();
  for (int64_t id = 0; id < model_.tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    const bool marker = std::ranges::find(markers, model_.tokenizer.token(token)) != markers.end();
    const bool ends = std::find(model_.eos_ids.begin(), model_.eos_ids.end(), token) != model_.eos_ids.end();
    if (!ends && (marker || !model_.tokenizer.is_special(token)))
      bytes[static_cast<size_t>(id)] = model_.tokenizer.token_bytes(token);
  }
  vocabulary_ = std::make_shared<const grammar::GrammarVocabulary>(
      grammar::GrammarVocabulary{grammar::TokenTrie(std::move(bytes)), model_.eos_ids});
  return vocabulary_;
}

std::optional<Constraint> Constraints::find_kept(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.key == key; });
  if (known == kept_.end()) return std::nullopt;
  if (known->made.grammar->states() > kStatesMax) return kept_.erase(known), std::nullopt;
  kept_.splice(kept_.begin(), kept_, known);
  return known->made;
}

Result<Constraint> Constraints::compiled(const CompletionRequest& request, bool triggered) const {
  const bool calls = request.tool_choice != ToolChoice::kNone;
  const OutputFormat& format = request.output_format;
  const std::string key = std::to_string(static_cast<int>(format.kind)) + (triggered ? "t" : "") +
                          (request.parallel_tool_calls ? "p" : "") + request.tool_name + "\n" +
                          (calls ? request.tools : format.what).dump();
  if (auto known = find_kept(key)) {
    if (known->grammar->failed()) return unsupported(grammar::kTooLarge);
    return std::move(*known);
  }
  ByteGrammar g;
  const NodeId begin = g.add();
  std::vector<std::string> passed_over;
  MOESTRO_ASSIGN_OR_RETURN(
      const NodeId end,
      calls ? add_calls(g, begin, request, *model_.tool_style, triggered, passed_over) : add_format(g, begin, format));
  g.end(end);
  g.set_start(begin);
  if (g.too_large()) return unsupported("it is too large");
  Constraint made{std::make_shared<grammar::CompiledGrammar>(std::move(g), vocabulary()), nullptr,
                  std::move(passed_over)};
  if (made.grammar->start() == grammar::kDeadState && !made.grammar->failed())
    return unsupported("no text can satisfy it: each goes on without an end, or nests deeper than " +
                       std::to_string(grammar::GrammarStates::kDepthMax) + " levels");
  if (const auto first = grammar::GrammarConstraint(made.grammar).allowed(); !first.is_ok())
    return unsupported(first.status().message());
  if (triggered)
    made.triggered = std::make_shared<grammar::TriggeredGrammar>(made.grammar, model_.tool_style->begin, vocabulary());
  if (made.grammar->failed()) return unsupported(grammar::kTooLarge);
  const std::lock_guard lock(mutex_);  // not while it was made: a small schema waits for no large one
  kept_.push_front({key, made});
  if (kept_.size() > kKeptMax) kept_.pop_back();
  return made;
}

std::variant<Constraint, ApiError> Constraints::of(const CompletionRequest& request) const {
  const bool calls = request.tool_choice != ToolChoice::kNone;
  if (calls && !model_.tool_style)
    return not_supported("tools", "the chat template of '" + model_.name +
                                      "' has no tool calls of a kind that is known here (" + kKnownToolStyles + ")");
  const OutputFormat& format = request.output_format;
  const bool free = format.kind == OutputFormat::Kind::kText;
  if (!calls && free) return Constraint{};
  const std::string field = calls ? "tools" : format.field;
  if (calls && !free)
    return not_supported(format.field, "not together with tools; give tool_choice \"none\", or leave it out");
  if (request.ignore_eos) return not_supported("ignore_eos", "not together with " + field);
  const bool triggered = calls && request.tool_choice == ToolChoice::kAuto;
  auto made = compiled(request, triggered);
  if (!made.is_ok()) {
    ApiError e = bad_request("'" + field + "': " + made.status().message(), field);
    if (made.status().code() == Code::kUnsupported) e.code = "unsupported_parameter";
    return e;
  }
  return std::move(*made);
}

}  // namespace moestro::orchestrator

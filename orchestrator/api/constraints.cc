#include "orchestrator/api/constraints.h"

#include <algorithm>

#include "orchestrator/forms/reasoning_grammar.h"
#include "orchestrator/grammar/choice_grammar.h"
#include "orchestrator/grammar/gbnf.h"
#include "orchestrator/grammar/json_schema.h"
#include "orchestrator/grammar/pattern.h"

namespace moestro::orchestrator {

using grammar::ByteGrammar;
using grammar::NodeId;

namespace {

constexpr size_t kKeptMax = 32;
constexpr int64_t kMaskSlice = 1'000'000;  ///< of the first mask's work between two looks at a stop: 10 ms
constexpr size_t kStatesMax = 50'000;  ///< a grammar that has grown beyond is made anew for new requests

bool is_strict(const RequestJson& function) { return function.value("strict", RequestJson()) == true; }

/// Any of the request's tools, or the one that was chosen. Where the model may call or not, what a schema wants beyond
/// what can be promised goes into `passed_over`, unless the tool is strict.
Result<NodeId> add_function(ByteGrammar& g, NodeId from, const CompletionRequest& request, const ToolForm& form,
                            std::vector<std::string>& passed_over) {
  const NodeId to = g.add();
  for (const RequestJson& tool : request.tools) {
    const RequestJson& function = tool["function"];
    if (!request.tool_name.empty() && function["name"] != request.tool_name) continue;
    const NodeId at = g.add();
    g.empty(from, at);
    const std::string where = "the function '" + function["name"].get<std::string>() + "': ";
    const bool may_pass = request.tool_choice == ToolChoice::kAuto && !is_strict(function);
    std::vector<std::string> passed;
    const auto end = form.add_call(g, at, function, may_pass ? &passed : nullptr);
    if (!end.is_ok()) return Status(end.status().code(), where + end.status().message());
    for (const std::string& what : passed) passed_over.push_back(where + what);
    g.empty(*end, to);
  }
  return to;
}

/// The calls of an answer; `triggered`: behind what begins them.
Result<NodeId> add_calls(ByteGrammar& g, NodeId from, const CompletionRequest& request, const ServedModel& model,
                         bool triggered, bool open, std::vector<std::string>& passed_over) {
  const ToolForm& form = *model.tool_form;
  if (!triggered && model.reasoning_style) from = add_reasoning(g, from, *model.reasoning_style, open);
  return form.add_calls(g, from, triggered, request.parallel_tool_calls, [&](ByteGrammar& grammar, NodeId call) {
    return add_function(grammar, call, request, form, passed_over);
  });
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

Status stopped() { return cancelled("nobody wants the answer any more"); }

/// Whether an answer can begin. Its first mask is kept with the grammar.
Status check_begin(const std::shared_ptr<grammar::CompiledGrammar>& made, const std::stop_token& stop) {
  grammar::GrammarConstraint at_begin(made);
  while (!stop.stop_requested()) {
    int64_t work = kMaskSlice;
    const auto mask = at_begin.allowed_within(work);
    if (!mask.is_ok()) return unsupported(mask.status().message());
    if (mask->has_value()) return Status::ok();
  }
  return stopped();
}

}  // namespace

std::shared_ptr<TokenConstraint> Constraint::begin(bool unshown_space) const {
  std::shared_ptr<TokenConstraint> text;
  if (triggered)
    text = std::make_shared<grammar::TriggeredConstraint>(triggered);
  else if (grammar)
    text = std::make_shared<grammar::GrammarConstraint>(grammar, unshown_space);
  return rules ? std::make_shared<RuledConstraint>(rules, std::move(text)) : text;
}

std::shared_ptr<const grammar::GrammarVocabulary> Constraints::vocabulary(bool calls) const {
  const std::lock_guard lock(vocabulary_mutex_);
  auto& made = calls ? vocabulary_of_calls_ : vocabulary_;
  if (made) return made;
  std::vector<std::string> bytes(static_cast<size_t>(model_.vocab)), markers;
  if (calls) markers = model_.tool_form->tokens();
  if (calls && model_.reasoning_style)
    for (std::string& token : model_.reasoning_style->shown()) markers.push_back(std::move(token));
  for (int64_t id = 0; id < model_.tokenizer.vocab_size(); ++id) {
    const auto token = static_cast<TokenId>(id);
    const bool marker = std::ranges::find(markers, model_.tokenizer.token(token)) != markers.end();
    const bool ends = std::find(model_.eos_ids.begin(), model_.eos_ids.end(), token) != model_.eos_ids.end();
    if (!ends && (marker || !model_.tokenizer.is_special(token)))
      bytes[static_cast<size_t>(id)] = model_.tokenizer.token_bytes(token);
  }
  made = std::make_shared<const grammar::GrammarVocabulary>(
      grammar::GrammarVocabulary{grammar::TokenTrie(std::move(bytes)), model_.eos_ids});
  return made;
}

std::optional<Constraint> Constraints::find_kept(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  const auto known = std::find_if(kept_.begin(), kept_.end(), [&](const Kept& k) { return k.key == key; });
  if (known == kept_.end()) return std::nullopt;
  if (known->made.grammar->states() > kStatesMax) return kept_.erase(known), std::nullopt;
  kept_.splice(kept_.begin(), kept_, known);
  return known->made;
}

Result<Constraint> Constraints::compiled(const CompletionRequest& request, bool triggered, bool open,
                                         const std::stop_token& stop) const {
  const bool calls = request.tool_choice != ToolChoice::kNone;
  const OutputFormat& format = request.output_format;
  const auto flag = [](bool is) { return is ? '1' : '0'; };  // each of one byte: a tool's name cannot be read as one
  const std::string key = std::to_string(static_cast<int>(format.kind)) + ":" + flag(triggered) +
                          flag(calls && open && !triggered) + flag(request.parallel_tool_calls) + request.tool_name +
                          "\n" + (calls ? request.tools : format.what).dump();
  if (auto known = find_kept(key)) {
    if (known->grammar->failed()) return unsupported(grammar::kTooLarge);
    return std::move(*known);
  }
  ByteGrammar g;
  const NodeId begin = g.add();
  std::vector<std::string> passed_over;
  MOESTRO_ASSIGN_OR_RETURN(
      const NodeId end,
      calls ? add_calls(g, begin, request, model_, triggered, open, passed_over) : add_format(g, begin, format));
  g.end(end);
  g.set_start(begin);
  if (g.too_large()) return unsupported("it is too large");
  if (stop.stop_requested()) return stopped();
  Constraint made{std::make_shared<grammar::CompiledGrammar>(std::move(g), vocabulary(calls)), nullptr,
                  std::move(passed_over)};
  if (made.grammar->start() == grammar::kDeadState && !made.grammar->failed())
    return unsupported("no text can satisfy it: each goes on without an end, or nests deeper than " +
                       std::to_string(grammar::GrammarStates::kDepthMax) + " levels");
  MOESTRO_RETURN_IF_ERROR(check_begin(made.grammar, stop));
  if (triggered) {
    using Then = grammar::TriggeredGrammar::Then;
    const CallFrame& frame = model_.tool_form->frame();
    const bool one = !request.parallel_tool_calls || frame.next.empty();
    // Where nothing ends a section, a call after the first has no marker: only the grammar can hold it to its schema.
    const bool to_the_end = one || (frame.section && frame.tail.empty());
    made.triggered = std::make_shared<grammar::TriggeredGrammar>(made.grammar, model_.tool_form->begins(),
                                                                 vocabulary(calls),
                                                                 to_the_end ? Then::kNothing : Then::kFreeText);
  }
  if (made.grammar->failed()) return unsupported(grammar::kTooLarge);
  const std::lock_guard lock(mutex_);  // not while it was made: a small schema waits for no large one
  kept_.push_front({key, made});
  if (kept_.size() > kKeptMax) kept_.pop_back();
  return made;
}

std::variant<Constraint, ApiError> Constraints::of(const CompletionRequest& request, bool reasoning_open,
                                                   const std::stop_token& stop) const {
  const bool calls = request.tool_choice != ToolChoice::kNone;
  if (calls && !model_.tool_form)
    return not_supported("tools", "'" + model_.name + "' takes no tools: " + model_.tool_form_missing);
  const OutputFormat& format = request.output_format;
  const bool free = format.kind == OutputFormat::Kind::kText;
  if (!calls && free) return Constraint{};
  const std::string field = calls ? "tools" : format.field;
  if (calls && !free)
    return not_supported(format.field, "not together with tools; give tool_choice \"none\", or leave it out");
  if (request.ignore_eos) return not_supported("ignore_eos", "not together with " + field);
  const bool triggered = calls && request.tool_choice == ToolChoice::kAuto;
  if (triggered && model_.tool_form->begins().empty()) return free_calls(request);
  auto made = compiled(request, triggered, reasoning_open, stop);
  if (!made.is_ok()) {
    ApiError e = bad_request("'" + field + "': " + made.status().message(), field);
    if (made.status().code() == Code::kUnsupported) e.code = "unsupported_parameter";
    return e;
  }
  return std::move(*made);
}

/// Calls that begin like any text: nothing can be promised of them.
std::variant<Constraint, ApiError> Constraints::free_calls(const CompletionRequest& request) const {
  const std::string why = "calls of the form " + model_.tool_form->name() + " begin like any text";
  for (const RequestJson& tool : request.tools)
    if (is_strict(tool["function"]))
      return not_supported("tools", "'strict' with tool_choice \"auto\": " + why);
  Constraint made;
  made.passed_over.push_back("tools: " + why);
  if (!request.parallel_tool_calls) made.passed_over.push_back("parallel_tool_calls: " + why);
  return made;
}

}  // namespace moestro::orchestrator

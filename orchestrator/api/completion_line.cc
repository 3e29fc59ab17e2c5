#include "orchestrator/api/completion_line.h"

#include <algorithm>

#include "orchestrator/api/sampling_request.h"

namespace moestro::orchestrator {

using nlohmann::json;

namespace {

constexpr const char* kStop = "stop";

ChoiceOptions choice_options(const ServedModel& model, const CompletionRequest& r, bool reasons) {
  ChoiceOptions o;
  o.min_tokens = r.min_tokens;
  o.ends = end_tokens(r, model.eos_ids);
  o.include_stop = r.include_stop_str_in_output;
  o.show_special = !r.skip_special_tokens;
  if (r.tool_choice != ToolChoice::kNone) o.shown = model.tool_form->tokens();
  if (reasons)
    for (std::string& token : model.reasoning_style->shown()) o.shown.push_back(std::move(token));
  return o;
}

bool contains(const std::vector<TokenId>& ids, TokenId id) { return std::ranges::find(ids, id) != ids.end(); }

}  // namespace

CompletionLine::CompletionLine(size_t i, const TokenizedPrompt& p, uint32_t number, const ServedModel& model,
                               const CompletionRequest& r, bool reasons)
    : index(i),
      prompt(p),
      choice_number(number),
      cursor(model.tokenizer, p.text),
      choice(model.tokenizer, &r.stop, std::span(p.ids).subspan(p.silent), r.echo ? &p.text : nullptr,
             choice_options(model, r, reasons && model.reasoning_style)) {
  const bool calls = r.tool_choice != ToolChoice::kNone;
  if (reasons && model.reasoning_style) reasoning.emplace(*model.reasoning_style, p.reasoning_open, calls);
  if (!calls) return;
  tools = model.tool_form->parser(r.tool_arguments);
  tools->avoid_ids(r.past_call_ids);
}

void CompletionLine::take_prompt_token(TokenScore score, bool has_score) {
  const TokenId token = prompt.ids[prompt_tokens.size()];
  PlacedToken placed = cursor.next(token);
  prompt_tokens.push_back({token, std::move(score), has_score, placed.code_points, std::move(placed.text)});
}

std::vector<ScoredToken> CompletionLine::take_echoed(int top) {
  std::vector<ScoredToken> tokens = std::move(prompt_tokens);
  const auto most = static_cast<size_t>(std::max(top, 0));
  for (ScoredToken& t : tokens)
    if (t.score.best.size() > most) t.score.best.resize(most);
  return tokens;
}

void CompletionLine::take_sampled(const SampledToken& token) {
  last_sampled = token.id;
  logprob_sum += token.score.logprob;
}

void CompletionLine::end(bool stopped, const CompletionRequest& r, const ServedModel& model) {
  reason = stopped || choice.stopped_at() != nullptr ? kStop : "length";
  const bool eos = !r.ignore_eos && contains(model.eos_ids, last_sampled);
  if (choice.stopped_at() != nullptr)
    stop_reason = *choice.stopped_at();
  else if (stopped && !eos && contains(r.stop_token_ids, last_sampled))
    stop_reason = last_sampled;
}

double CompletionLine::mean_logprob() const {
  return choice.tokens() == 0 ? 0 : logprob_sum / static_cast<double>(choice.tokens());
}

std::vector<json> CompletionLine::take_apart(const std::string& text, const std::string& answer_id,
                                             bool include_reasoning) {
  ChatDeltas deltas;
  if (!reasoning) {
    take_answer(text, answer_id, deltas);
  } else {
    reasoning->push(text);
    if (ended()) reasoning->finish();
    for (const ReasonedText& said : reasoning->take()) {
      if (!said.reasoning) take_answer(said.text, answer_id, deltas);
      else if (include_reasoning) deltas.add_reasoning(said.text);
    }
  }
  if (!tools) return deltas.take();
  if (ended()) tools->finish();
  take_answer("", answer_id, deltas);
  if (reason == kStop && tools->calls() > 0) reason = "tool_calls";
  return deltas.take();
}

/// What is behind the reasoning.
void CompletionLine::take_answer(const std::string& text, const std::string& answer_id, ChatDeltas& deltas) {
  if (!tools) return deltas.add_content(text);
  tools->push(text);
  for (AnswerPiece& piece : tools->take()) {
    if (const auto* content = std::get_if<std::string>(&piece)) {
      deltas.add_content(*content);
      continue;
    }
    auto& delta = std::get<ToolCallDelta>(piece);
    json call{{"index", delta.index}, {"function", {{"arguments", std::move(delta.arguments)}}}};
    if (delta.begins) {
      call["id"] = delta.id.empty() ? call_id(answer_id, delta.index) : std::move(delta.id);
      call["type"] = "function";
      call["function"]["name"] = std::move(delta.name);
    }
    deltas.add_call(std::move(call));
  }
}

json CompletionLine::message(const std::string& text, const std::string& answer_id, const CompletionRequest& r) {
  std::vector<json> deltas = take_apart(text, answer_id, r.include_reasoning);
  if (r.in_order) return {{"role", "assistant"}, {"deltas", std::move(deltas)}};
  return joined_message(deltas, reasoning && r.include_reasoning);
}

/// Nine letters and digits: some templates take no others.
std::string CompletionLine::call_id(const std::string& answer_id, size_t call) const {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t n = std::hash<std::string>()(answer_id + "/" + std::to_string(index) + "/" + std::to_string(call));
  std::string text;
  for (int i = 0; i < 9; ++i, n /= kLetters.size()) text += kLetters[n % kLetters.size()];
  return text;
}

}  // namespace moestro::orchestrator

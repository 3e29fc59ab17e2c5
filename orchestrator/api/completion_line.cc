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

ChatText CompletionLine::take_apart(std::string text, const std::string& answer_id) {
  ChatText parts;
  if (reasoning) {
    reasoning->push(text);
    if (ended()) reasoning->finish();
    parts.reasoning = reasoning->take_reasoning();
    text = reasoning->take_content();
  }
  if (!tools) {
    parts.content = std::move(text);
    return parts;
  }
  tools->push(text);
  if (ended()) tools->finish();
  parts.content = tools->take_content();
  for (ToolCallDelta& delta : tools->take_calls()) {
    json call{{"index", delta.index}, {"function", {{"arguments", std::move(delta.arguments)}}}};
    if (delta.begins) {
      call["id"] = delta.id.empty() ? call_id(answer_id, delta.index) : std::move(delta.id);
      call["type"] = "function";
      call["function"]["name"] = std::move(delta.name);
    }
    parts.calls.push_back(std::move(call));
  }
  if (reason == kStop && tools->calls() > 0) reason = "tool_calls";
  return parts;
}

json CompletionLine::message(std::string text, const std::string& answer_id, bool include_reasoning) {
  ChatText parts = take_apart(std::move(text), answer_id);
  const bool only_calls = parts.content.empty() && !parts.calls.empty();
  json message{{"role", "assistant"}, {"content", only_calls ? json() : json(std::move(parts.content))}};
  if (reasoning && include_reasoning)
    message["reasoning_content"] = parts.reasoning.empty() ? json() : json(std::move(parts.reasoning));
  if (parts.calls.empty()) return message;
  json& calls = message["tool_calls"] = json::array();
  for (const json& delta : parts.calls) {
    if (delta.contains("id"))
      calls.push_back({{"id", delta["id"]}, {"type", "function"}, {"function", delta["function"]}});
    else
      calls.back()["function"]["arguments"] =
          calls.back()["function"]["arguments"].get<std::string>() + delta["function"]["arguments"].get<std::string>();
  }
  return message;
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

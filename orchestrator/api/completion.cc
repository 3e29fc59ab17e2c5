#include "orchestrator/api/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "common/log.h"
#include "common/log_format.h"
#include "orchestrator/api/answer_headers.h"

namespace moestro::orchestrator {

using nlohmann::json;
using std::chrono::steady_clock;

namespace {
/// The text of an answer to more, which may have log-probabilities for each, is not made on the server's thread.
constexpr int64_t kLongAnswerTokens = 1024;
}  // namespace

Sink posted_sink(const CompletionContext& context, std::function<void(SequenceEvent)> take) {
  return [post = context.post, take = std::move(take)](SequenceEvent event) {
    post([take, e = std::make_shared<SequenceEvent>(std::move(event))] { take(std::move(*e)); });
  };
}

Completion::Completion(const CompletionContext& context, AnswerFrame frame, CompletionRequest request,
                       std::vector<TokenizedPrompt> prompts, Constraint constraint, uint64_t seed,
                       std::shared_ptr<Exchange> exchange)
    : context_(context),
      frame_(std::move(frame)),
      request_(std::move(request)),
      prompts_(std::move(prompts)),
      constraint_(std::move(constraint)),
      seed_(seed),
      exchange_(std::move(exchange)) {}

Completion::~Completion() = default;

SequenceRequest Completion::sequence_request(Line& line) const {
  SequenceRequest s;
  s.id = line.id;
  s.prompt = line.prompt.ids;
  s.source = line.prompt.source;
  const int64_t room =
      std::max(context_.context_max, context_.control.context_max()) - static_cast<int64_t>(line.prompt.ids.size());
  // Where a window lets sequences be longer than the model's context, an answer of which nobody said how long still
  // ends.
  s.tokens_max = std::min(request_.max_tokens.value_or(context_.context_max), room);
  s.open_ended = !request_.max_tokens;
  s.sampling = request_.sampling;
  // A seed gives a prompt the same answer in whatever company. Without one, equal prompts are drawn independently.
  s.sampling.seed = request_.seed ? seed_ : seed_ + (line.index - line.choice_number);
  s.sampling.choice = line.choice_number;
  s.sampling.logprobs = request_.best_of > request_.n ? std::max(request_.logprobs, 0) : request_.logprobs;
  s.bias = request_.logit_bias;
  s.score_top = line.score_top;
  s.ignore_eos = request_.ignore_eos;
  s.stop_ids = request_.stop_token_ids;
  s.priority = request_.priority;
  s.text_ends = !request_.stop.empty();
  s.prefix_domain = request_.prefix_domain;
  s.low_share_max = request_.low_share_max;
  s.constraint = constraint_.begin(constraint_.grammar && line.choice.first_space_unshown());
  s.background = exchange_->background();
  s.flow = request_.owner;
  s.request_id = exchange_->request_id();
  return s;
}

/// Of the choices of a prompt the first has its scores for all.
int Completion::score_top(const Line& line) const {
  return std::max(request_.echo ? request_.logprobs : -1, line.choice_number == 0 ? request_.prompt_logprobs : -1);
}

void Completion::start() {
  // An output format holds from the first token on and leaves no room for reasoning.
  const bool reasons = frame_.chat && (request_.tool_choice != ToolChoice::kNone || !constraint_.grammar);
  for (const TokenizedPrompt& prompt : prompts_) {
    for (uint32_t c = 0; c < static_cast<uint32_t>(request_.best_of); ++c) {
      auto line = std::make_unique<Line>(lines_.size(), prompt, c, context_.model, request_, reasons);
      line->id = context_.control.next_sequence_id();
      line->score_top = score_top(*line);
      if (line->score_top >= 0) line->take_prompt_token({}, false);
      lines_.push_back(std::move(line));
    }
  }
  open_lines_ = lines_.size();
  context_.metrics.request_started();
  for (const TokenizedPrompt& p : prompts_) context_.metrics.prompt_tokens(p.tokens());
  // The exchange keeps this object alive until the answer is out.
  exchange_->on_gone([self = shared_from_this()] {
    if (std::exchange(self->over_, true)) return;
    self->cancel_all();
    self->context_.metrics.request_ended("cancelled", true);
  });
  for (const auto& line : lines_) {
    Sink sink = posted_sink(context_, [weak = weak_from_this(), i = line->index](SequenceEvent event) {
      if (const auto self = weak.lock()) self->on_event(i, std::move(event));
    });
    if (Status s = context_.control.submit(sequence_request(*line), std::move(sink)); !s.is_ok()) return fail(s);
  }
  if (request_.stream) stream_open();
}

void Completion::stream_open() {
  streaming_ = true;
  exchange_->begin_stream(headers());
  exchange_->on_drained([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->show();
  });
  if (!frame_.chat) return;
  for (const auto& line : lines_)
    write_chunk({{"index", line->index},
                 {"delta", {{"role", "assistant"}, {"content", ""}}},
                 {"logprobs", nullptr},
                 {"finish_reason", nullptr}});
}

void Completion::on_event(size_t index, SequenceEvent event) {
  Line& line = *lines_[index];
  if (over_ || line.ended()) return;
  if (auto* failed = std::get_if<Failed>(&event)) return fail(failed->error, failed->quarantined);
  if (auto* progress = std::get_if<Progress>(&event)) on_progress(line, *progress);
  if (auto* done = std::get_if<Finished>(&event)) {
    line.choice.finish();
    if (!request_.stop.empty())
      context_.control.cancel(
          line.id, static_cast<int64_t>(line.choice.tokens()));  // no stop string was found: all of it stands
    end_line(line, done->reason == FinishReason::kStop);
  }
  if (streaming_) {
    line.unshown = true;
    return show();
  }
  if (open_lines_ == 0) finish();
}

/// Streams what has been said. A client that is behind gets it in fewer and larger chunks, once it has taken what is on
/// its way: its sequences do not wait for it, and what is kept for it is no more than the same answer would need that
/// is not streamed.
void Completion::show() {
  if (over_) return;
  for (const auto& line : lines_) {
    if (exchange_->crowded()) return;
    if (std::exchange(line->unshown, false)) stream_line(*line);
  }
  if (open_lines_ == 0) finish();
}

void Completion::on_progress(Line& line, Progress& progress) {
  line.cached_tokens = progress.prompt_tokens_cached;
  line.copies += progress.copies;
  for (TokenScore& score : progress.prompt_scores) line.take_prompt_token(std::move(score), true);
  const auto prompt = static_cast<int64_t>(line.prompt.ids.size());
  if (streaming_ && progress.prompt_tokens_done < prompt &&
      !exchange_->crowded())  // a comment: shows that the prompt is being read, and keeps proxies waiting
    exchange_->write(": prompt " + std::to_string(progress.prompt_tokens_done) + "/" + std::to_string(prompt) + "\n\n");
  if (progress.sampled.empty()) return;
  measure(line, progress.sampled.size());
  for (SampledToken& token : progress.sampled) {
    if (request_.return_token_ids) line.new_token_ids.push_back(token.id);
    line.take_sampled(token);
    if (line.choice.push(std::move(token))) {
      context_.control.cancel(line.id, static_cast<int64_t>(line.choice.tokens()));
      return end_line(line, true);
    }
  }
}

void Completion::measure(Line& line, size_t tokens) {
  const auto now = steady_clock::now();
  if (line.last_token == steady_clock::time_point{})
    context_.metrics.first_token(now - arrived_);
  else
    context_.metrics.next_tokens(now - line.last_token, tokens);
  line.last_token = now;
}

void Completion::end_line(Line& line, bool stopped) {
  line.end(stopped, request_, context_.model);
  --open_lines_;
}

/// What a choice has in a chunk and in a whole answer.
json Completion::choice_head(const Line& line, size_t index) const {
  json head{{"index", index}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (!line.ended()) return head;
  head["finish_reason"] = line.reason;
  head["stop_reason"] = line.stop_reason;
  return head;
}

void Completion::stream_line(Line& line) {
  std::string text = line.choice.take_text();
  std::vector<ScoredToken> tokens = line.choice.take_tokens();
  if (request_.echo && !line.echoed) {
    const bool scored = line.score_top < 0 || line.prompt_tokens.size() == line.prompt.ids.size();
    if (scored) {
      text = line.choice.echo() + text;
      tokens.insert(tokens.begin(), line.prompt_tokens.begin(), line.prompt_tokens.end());
      line.echoed = true;
    }
  }
  std::vector<json> deltas;
  if (frame_.chat) deltas = line.take_apart(text, frame_.id, request_.include_reasoning);
  const bool silent = frame_.chat ? deltas.empty() : text.empty();
  if (silent && tokens.empty() && !line.ended()) return;
  json choice = choice_head(line, line.index);
  if (request_.logprobs >= 0 && !tokens.empty())
    choice["logprobs"] = logprobs_json(context_.model.tokenizer, tokens, frame_.chat, request_.logprobs);
  if (request_.return_token_ids) choice["token_ids"] = std::exchange(line.new_token_ids, {});
  if (!frame_.chat) {
    choice["text"] = std::move(text);
    return write_chunk(std::move(choice));
  }
  if (deltas.empty()) deltas.push_back(json::object());
  // Text that came in one go can need several deltas: the last chunk has what is said of all of it.
  for (size_t i = 0; i + 1 < deltas.size(); ++i)
    write_chunk({{"index", line.index},
                 {"delta", std::move(deltas[i])},
                 {"logprobs", nullptr},
                 {"finish_reason", nullptr}});
  choice["delta"] = std::move(deltas.back());
  write_chunk(std::move(choice));
}

void Completion::write_chunk(json choice) {
  json chunk = answer_frame(frame_, true);
  chunk["choices"].push_back(std::move(choice));
  exchange_->write(server_sent_event(chunk));
}

void Completion::finish() {
  over_ = true;
  context_.metrics.request_ended("ok", true);
  if (request_.stream) {
    if (request_.include_usage) {
      json chunk = answer_frame(frame_, true);
      chunk["usage"] = usage_json(prompt_tokens(), cached_tokens(), completion_tokens(), copies());
      exchange_->write(server_sent_event(chunk));
    }
    exchange_->write("data: [DONE]\n\n");
    return exchange_->end_stream();
  }
  const bool is_long = prompt_tokens() + completion_tokens() > kLongAnswerTokens;
  context_.pool.answer(
      request_.owner, is_long, [self = shared_from_this()] { return self->answer_text(); }, whole_headers(), exchange_);
}

/// Those of a prompt's choices that are returned, the best first where there are more of them; `first` is the prompt's
/// first.
std::vector<Completion::Line*> Completion::returned_of(size_t first) const {
  std::vector<Line*> all;
  for (size_t i = first; i < first + static_cast<size_t>(request_.best_of); ++i) all.push_back(lines_[i].get());
  if (request_.best_of > request_.n) std::ranges::stable_sort(all, std::greater(), &Line::mean_logprob);
  all.resize(static_cast<size_t>(request_.n));
  return all;
}

json Completion::whole_choice(Line& line, size_t index) const {
  std::string text = line.choice.echo() + line.choice.take_text();
  json message = frame_.chat ? line.message(text, frame_.id, request_) : json();  // may end in calls
  json choice = choice_head(line, index);
  if (request_.logprobs >= 0) {
    std::vector<ScoredToken> tokens;
    if (request_.echo) tokens = line.take_echoed(request_.logprobs);
    for (ScoredToken& t : line.choice.take_tokens()) tokens.push_back(std::move(t));
    choice["logprobs"] = logprobs_json(context_.model.tokenizer, tokens, frame_.chat, request_.logprobs);
  }
  if (request_.return_token_ids) choice["token_ids"] = line.new_token_ids;
  if (frame_.chat)
    choice["message"] = std::move(message);
  else
    choice["text"] = std::move(text);
  return choice;
}

std::string Completion::answer_text() {
  json answer = answer_frame(frame_, false);
  json& choices = answer["choices"];
  for (size_t first = 0; first < lines_.size(); first += static_cast<size_t>(request_.best_of)) {
    json scores;
    if (request_.prompt_logprobs >= 0)
      scores = prompt_logprobs_json(context_.model.tokenizer, lines_[first]->prompt_tokens, request_.prompt_logprobs);
    for (Line* line : returned_of(first)) {
      choices.push_back(whole_choice(*line, choices.size()));
      if (request_.prompt_logprobs >= 0 && !frame_.chat) choices.back()["prompt_logprobs"] = scores;
    }
    if (request_.prompt_logprobs >= 0 && frame_.chat) answer["prompt_logprobs"] = std::move(scores);
  }
  answer["usage"] = usage_json(prompt_tokens(), cached_tokens(), completion_tokens(), copies());
  return dump(answer);
}

/// What was asked for and is not done is said where clients that do not look for it are not disturbed.
Headers Completion::headers() const {
  Headers headers;
  add_list(headers, "X-Moestro-Not-Constrained", constraint_.passed_over);
  add_ignored(headers, request_.ignored);
  return headers;
}

/// Only a whole answer knows its share when its headers are written.
Headers Completion::whole_headers() const {
  Headers all = headers();
  const double share = copies().not_full_share();
  if (context_.mixed_warn_share && share > *context_.mixed_warn_share)
    all.emplace_back("X-Moestro-Low-Share", fmt::format("{:.4f}", share));
  return all;
}

void Completion::fail(const Status& error, bool quarantined) {
  if (std::exchange(over_, true)) return;
  cancel_all();
  const ApiError e = from_status(error);
  context_.metrics.request_ended(e.http_status < 500 ? "refused" : "error", true);
  const log::Field field("request_id", exchange_->request_id());
  // Other answers are logged where they go out.
  if (streaming_ ? e.http_status >= 500 : e.http_status == 500 && exchange_->background())
    log::warn("{} failed: {}", frame_.id, e.message);
  if (streaming_) {
    for (const auto& line : lines_)
      if (std::exchange(line->unshown, false)) stream_line(*line);
    exchange_->write("data: " + e.body() + "\n\n");
    exchange_->write("data: [DONE]\n\n");  // clients that wait for it must not hang on an error
    return exchange_->end_stream();
  }
  exchange_->respond(e.http_status, "application/json", e.body(), failure_headers(e, context_.control, quarantined));
}

void Completion::cancel_all() {
  for (const auto& line : lines_)
    if (!line->ended()) context_.control.cancel(line->id);
}

int64_t Completion::prompt_tokens() const {
  int64_t n = 0;
  for (const TokenizedPrompt& p : prompts_) n += static_cast<int64_t>(p.tokens());
  return n;
}

/// A prompt counts once, so of its choices the one that found the least in the KV cache tells: what it had to compute,
/// the request had to.
int64_t Completion::cached_tokens() const {
  int64_t n = 0;
  const auto choices = static_cast<size_t>(request_.best_of);
  for (size_t first = 0; first < lines_.size(); first += choices) {
    int64_t least = lines_[first]->cached_tokens;
    for (size_t i = first; i < first + choices; ++i) least = std::min(least, lines_[i]->cached_tokens);
    n += least;
  }
  return n;
}

CopyCounts Completion::copies() const {
  CopyCounts sum;
  for (const auto& line : lines_) sum += line->copies;
  return sum;
}

int64_t Completion::completion_tokens() const {
  int64_t n = 0;
  for (const auto& line : lines_) n += static_cast<int64_t>(line->choice.tokens());
  return n;
}

}  // namespace moestro::orchestrator

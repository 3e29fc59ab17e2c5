#include "orchestrator/history/history_keeper.h"

#include <algorithm>
#include <utility>

#include "common/log.h"

namespace moestro::orchestrator {

using activation::ActivationHistory;
using activation::Eamc;
using activation::RequestCounts;

namespace {
/// A stop string is found within a step or two. Whoever is told of it later than this leaves no answer in the history,
/// rather than a wrong one.
constexpr size_t kTail = 16;
constexpr size_t kUnsettledMax = 4096;
}  // namespace

HistoryKeeper::HistoryKeeper(HistoryOptions options) : options_(std::move(options)) {}

void HistoryKeeper::begin(uint64_t pack_identity, const activation::EamcShape& shape) {
  if (options_.capacity == 0 || shape.cells() == 0) return;
  if (history_ && pack_identity_ == pack_identity && history_->answers.shape() == shape) return;
  history_ = options_.make ? options_.make(pack_identity, shape, options_.capacity)
                           : std::make_unique<ActivationHistory>(shape, options_.capacity);
  pack_identity_ = pack_identity;
  for (auto& [id, sequence] : sequences_) sequence.counts.reset(), sequence.tail.clear();
  if (options_.checkpoint.empty()) return;
  const Status read = activation::read_checkpoint(options_.checkpoint, pack_identity, *history_);
  if (read.is_ok())
    log::info("history: {} prompts and {} answers of past requests", history_->prompts.size(),
              history_->answers.size());
  else log::warn("history: the checkpoint is not used, and the history starts empty: {}", read.message());
  options_.checkpoint = {};
}

void HistoryKeeper::submitted(SequenceId sequence, int64_t prompt_tokens, bool text_ends) {
  if (options_.capacity > 0) sequences_.emplace(sequence, Sequence{prompt_tokens, text_ends, 0, nullptr});
}

void HistoryKeeper::planned(WorkerId worker, Plan& plan) {
  if (options_.capacity == 0) return;
  auto& chunks = under_way_[worker][plan.id];
  for (PlannedSequence& p : plan.sequences) {
    const auto found = sequences_.find(p.id);
    if (found == sequences_.end()) continue;
    if (p.source) {
      chunks.emplace_back(p.id, Chunk{.source = true});
      continue;
    }
    p.counted = found->second.counted;
    chunks.emplace_back(p.id, Chunk{p.first_position, p.first_position + static_cast<int64_t>(p.tokens.size())});
  }
}

void HistoryKeeper::done(WorkerId worker, const PlanOutcome& outcome) {
  const auto at = under_way_.find(worker);
  if (at == under_way_.end()) return;
  const auto plan = at->second.find(outcome.plan);
  if (plan == at->second.end()) return;
  const auto chunks = std::move(plan->second);
  at->second.erase(plan);
  for (const SequenceOutcome& o : outcome.sequences) {
    const auto chunk = std::ranges::find(chunks, o.id, [](const auto& c) { return c.first; });
    const auto sequence = sequences_.find(o.id);
    if (chunk == chunks.end() || sequence == sequences_.end() || !o.error.is_ok()) continue;
    if (chunk->second.source) count_source(sequence->second, o.activations);
    else count(sequence->second, chunk->second, o.activations);
  }
}

/// A source is read as a prompt is. Where it is encoded again, it has been counted.
void HistoryKeeper::count_source(Sequence& s, std::span<const activation::ActivationCount> counts) const {
  if (!history_ || counts.empty() || std::exchange(s.source_counted, true)) return;
  if (!s.counts) s.counts = std::make_unique<RequestCounts>(history_->answers.shape());
  (void)s.counts->prompt.add(counts);
}

void HistoryKeeper::lost(WorkerId worker) { under_way_.erase(worker); }

void HistoryKeeper::count(Sequence& s, const Chunk& chunk, std::vector<activation::ActivationCount> counts) {
  // Nothing new: computed again elsewhere. A chunk that is new in part was counted by the worker from where the plan
  // said.
  if (!history_ || counts.empty() || chunk.end <= s.counted) return;
  const int64_t first_new = std::max(chunk.first, s.counted);
  s.counted = chunk.end;
  if (!s.counts) s.counts = std::make_unique<RequestCounts>(history_->answers.shape());
  // Cells that the model does not have are a peer's mistake: they are left out.
  if (first_new < s.prompt_tokens) return (void)s.counts->prompt.add(counts);
  if (!s.text_ends) return (void)s.counts->answer.add(counts);
  s.tail.push_back({chunk.end, std::move(counts)});
  if (s.tail.size() > kTail) add_first(s);
}

void HistoryKeeper::add_first(Sequence& s) {
  (void)s.counts->answer.add(s.tail.front().counts);
  s.added = s.tail.front().end;
  s.tail.pop_front();
}

/// Its answer's positions from `end` on are not its own.
void HistoryKeeper::cut(Sequence& s, int64_t end) {
  if (s.added > end) s.counts->answer.clear(), s.tail.clear();
  while (!s.tail.empty() && s.tail.front().end <= end) add_first(s);
}

std::vector<HistoryEntry> HistoryKeeper::ended(SequenceId sequence) {
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return {};
  if (!found->second.text_ends) return settled(sequence, -1);
  unsettled_.push_back(sequence);
  if (unsettled_.size() > kUnsettledMax) sequences_.erase(unsettled_.front()), unsettled_.pop_front();
  return {};
}

std::vector<HistoryEntry> HistoryKeeper::settled(SequenceId sequence, int64_t sampled) {
  std::vector<HistoryEntry> changes;
  const auto found = sequences_.find(sequence);
  if (found == sequences_.end()) return changes;
  // The last token was sampled, not computed.
  const int64_t end =
      sampled < 0 ? found->second.counted : found->second.prompt_tokens + std::max<int64_t>(0, sampled - 1);
  if (found->second.counts) cut(found->second, end);
  const std::unique_ptr<RequestCounts> counts = std::move(found->second.counts);
  sequences_.erase(found);
  if (!counts || !history_) return changes;
  const ActivationHistory::Changes made = history_->add(*counts);
  for (const auto& [change, answer] : {std::pair(made.prompt, false), std::pair(made.answer, true)}) {
    if (!change) continue;
    changes.push_back({answer, change->entry});
    replacements_ += change->replaced ? 1 : 0;
  }
  if (changes.empty()) return changes;
  ++requests_;
  changed_ = true;
  return changes;
}

HistoryFigures HistoryKeeper::figures() const {
  HistoryFigures f{
      .capacity = static_cast<uint64_t>(options_.capacity), .requests = requests_, .replacements = replacements_};
  if (history_)
    f.prompts = static_cast<uint64_t>(history_->prompts.size()),
    f.answers = static_cast<uint64_t>(history_->answers.size());
  return f;
}

std::optional<std::vector<std::byte>> HistoryKeeper::checkpoint(Nanos now, bool at_once) {
  if (!checkpointed_) checkpointed_ = now;
  if (!changed_ || !history_ || (!at_once && now - *checkpointed_ < options_.interval)) return std::nullopt;
  checkpointed_ = now;
  changed_ = false;
  return activation::write_checkpoint(*history_, pack_identity_);
}

}  // namespace moestro::orchestrator

#include "services/worker/engine/logit_adjustment.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/expert_layout.h"

namespace moestro::engine {

void TokenHistory::add(TokenId id, bool sampled) {
  const auto at = std::lower_bound(entries_.begin(), entries_.end(), id,
                                   [](const Entry& e, TokenId wanted) { return e.id < wanted; });
  const bool known = at != entries_.end() && at->id == id;
  Entry& entry = known ? *at : *entries_.insert(at, Entry{id, 0});
  entry.sampled += sampled;
}

void TokenHistory::update(int64_t first, std::span<const TokenId> tokens, int64_t prompt) {
  if (first == 0) {
    entries_.clear();
    length_ = 0;
    // A whole history at once: sorted, rather than inserted one by one.
    for (const TokenId id : tokens) entries_.push_back({id, 0});
    std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.id < b.id; });
    entries_.erase(
        std::unique(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) { return a.id == b.id; }),
        entries_.end());
  }
  for (const TokenId id : tokens) {
    if (first > 0 || length_ >= prompt) add(id, length_ >= prompt);
    ++length_;
  }
}

Status check_adjustment(const std::string& name, const PlanSequence& s, int64_t vocab) {
  const Sampling& p = s.sampling;
  const auto bad = [&](const std::string& what) { return invalid_argument(name + ": " + what); };
  constexpr float kMost = 1e6F;
  if (!(p.repetition_penalty >= 1 / kMost && p.repetition_penalty <= kMost))
    return bad("repetition_penalty is not a sensible number above 0");
  if (!(std::fabs(p.presence_penalty) <= kMost)) return bad("presence_penalty is not a sensible number");
  if (!(std::fabs(p.frequency_penalty) <= kMost)) return bad("frequency_penalty is not a sensible number");
  for (const LogitBias& b : s.bias) {
    if (b.id < 0 || b.id >= vocab) return bad("logit_bias names a token that is not of the vocabulary");
    if (!(std::fabs(b.bias) <= kMost)) return bad("a logit_bias is not a sensible number");
  }
  if (s.allowed.empty()) return Status::ok();
  if (static_cast<int64_t>(s.allowed.size()) != ceil_div(vocab, 32))
    return bad("the mask of allowed tokens is not of this vocabulary");
  int64_t allowed = 0;
  for (const uint32_t word : s.allowed) allowed += std::popcount(word);
  if (allowed == 0) return bad("no token is allowed");
  if (vocab % 32 != 0 && (s.allowed.back() >> (vocab % 32)) != 0)
    return bad("the mask allows tokens beyond the vocabulary");
  return Status::ok();
}

void adjust_logits(std::span<float> logits, const PlanSequence& s, const TokenHistory& history) {
  const Sampling& p = s.sampling;
  if (p.penalises()) {
    for (const TokenHistory::Entry& e : history.entries()) {
      float& logit = logits[static_cast<size_t>(e.id)];
      logit = logit > 0 ? logit / p.repetition_penalty : logit * p.repetition_penalty;
      if (e.sampled > 0) logit -= p.presence_penalty + p.frequency_penalty * static_cast<float>(e.sampled);
    }
  }
  for (const LogitBias& b : s.bias) logits[static_cast<size_t>(b.id)] += b.bias;
  if (s.allowed.empty()) return;
  for (size_t word = 0; word < s.allowed.size(); ++word) {
    if (s.allowed[word] == UINT32_MAX) continue;
    const size_t end = std::min(logits.size(), (word + 1) * 32);
    for (size_t id = word * 32; id < end; ++id)
      if ((s.allowed[word] >> (id % 32) & 1) == 0) logits[id] = -std::numeric_limits<float>::infinity();
  }
}

}  // namespace moestro::engine

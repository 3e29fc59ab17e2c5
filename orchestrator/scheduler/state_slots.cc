// States of sequences, for models with linear attention: a state stands for all positions before it, so a sequence can
// only go on where a state was kept. Each running sequence has a slot, which every plan of it reads and writes. States
// of prefixes are kept in the others, published under the key of the block that they follow, and are held by none, so
// that those used least recently make room. They are kept
//   - at every multiple of the worker's interval, so that what prompts share is found wherever it ends;
//   - where the found blocks of a prompt ended: there another prompt has branched off, and a third may;
//   - after the last block of a prompt, and of an answer as it grows, where the next turn of a conversation goes on. Of
//     an answer's states only the newest is left.
// A plan that failed may have changed a state or not: its sequences begin again from what was kept.

#include <algorithm>

#include "common/check.h"
#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

/// Whether `s` can go on behind this block. One that is yet to get its slot must not take that very one for it.
bool Scheduler::has_state_for(const Worker& worker, const Sequence& s, const PrefixLink& link) const {
  if (!worker.has_states()) return true;
  const auto slot = worker.states.find(link);
  return slot && (s.state != kNoBlock || worker.states.is_held(*slot) || worker.states.available() > 1);
}

/// After how many tokens, of those in [first, end), the state is kept.
std::vector<int64_t> Scheduler::kept_after(const Worker& worker, const Sequence& s, int64_t first, int64_t end) const {
  if (!options_.prefix_cache) return {};
  const int64_t block = worker.kv.block_tokens(), interval = worker.limits.state_interval;
  std::vector<int64_t> kept;
  for (int64_t at = first - first % interval + interval; at <= end; at += interval) kept.push_back(at);
  kept.push_back(s.fork);
  if (end == s.expected()) kept.push_back((end > s.prompt() ? end : end - 1) / block * block);
  std::erase_if(kept, [&](int64_t at) { return at <= first || at > end; });
  std::ranges::sort(kept);
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  return kept;
}

/// Slots that there are not for a state that would be kept are no reason to wait.
void Scheduler::plan_states(Worker& worker, Sequence& s, Part& part, PlannedSequence& p) {
  if (!worker.has_states()) return;
  const int64_t end = part.first + part.tokens;
  part.resumes = std::exchange(s.resumes, kNoBlock);
  p.state = part.resumes == kNoBlock ? s.state : part.resumes;
  if (part.resumes != kNoBlock) ++states_restored_;
  for (const int64_t at : kept_after(worker, s, part.first, end)) {
    const bool known = at <= s.length();
    if (known && worker.states.find(link(worker, s, at / worker.kv.block_tokens() - 1))) continue;
    if (const auto slot = worker.states.take()) part.kept.push_back({at, *slot});
  }
  p.states = part.kept;
  p.states.push_back({end, s.state});
}

/// What a part kept can be found from now on. Its tokens are known, and computed. An answer that rolls on drops only
/// what it published itself: another conversation may end where the same state was kept before.
void Scheduler::keep_states(Worker& worker, Sequence& s, const Part& part) {
  const int64_t block = worker.kv.block_tokens();
  for (const StateWrite& kept : part.kept) {
    const int64_t last = kept.tokens / block - 1;
    if (!worker.states.publish(kept.slot, link(worker, s, last))) continue;
    ++states_kept_;
    if (kept.tokens <= s.prompt() || kept.tokens % worker.limits.state_interval == 0) continue;
    if (s.rolled >= 0) worker.states.drop(link(worker, s, s.rolled));
    s.rolled = last;
  }
}

void Scheduler::let_go_of_states(Worker& worker, Part& part) {
  if (part.resumes != kNoBlock) worker.states.give_back(std::exchange(part.resumes, kNoBlock));
  for (const StateWrite& kept : part.kept) worker.states.give_back(kept.slot);
  part.kept.clear();
}

void Scheduler::let_go_of_state(Worker& worker, Sequence& s) {
  for (uint32_t* slot : {&s.state, &s.resumes})
    if (*slot != kNoBlock) worker.states.give_back(std::exchange(*slot, kNoBlock));
  s.rolled = -1;
}

}  // namespace moestro::orchestrator

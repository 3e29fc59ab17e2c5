// Prompts that are admitted at one time, as those of a worker that died are: spread by length.

#include <algorithm>
#include <map>
#include <tuple>

#include "common/lanes/length_balance.h"
#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

/// Whether a sequence that one of them has room for fits into the other as well if that has as many blocks free, and
/// may be computed there.
bool Scheduler::alike() const {
  if (!is_everywhere(workers_.begin()->second->version)) return false;
  const auto limits = [](const auto& entry) {
    const WorkerLimits& l = entry.second->limits;
    return std::tuple(l.kv_block_tokens, l.context_max, l.step_tokens_max, l.step_sequences_max, l.kv_sinks,
                      l.kv_window, l.state_slots, entry.second->length_max());
  };
  return std::all_of(workers_.begin(), workers_.end(),
                     [&](const auto& entry) { return limits(entry) == limits(*workers_.begin()); });
}

/// Whether every worker that gets lines of a batch has room for what they and its own are expected to grow to.
/// targets[i]: where admitted[i] is to be. What leaves a worker is counted as if it stayed.
bool Scheduler::foreseen(std::span<Sequence* const> admitted, std::span<Worker* const> targets) {
  std::map<Worker*, std::vector<const Sequence*>> lines;
  std::map<Worker*, int64_t> wanted;  // blocks
  for (size_t i = 0; i < admitted.size(); ++i) {
    if (admitted[i]->worker == targets[i]) continue;
    wanted[targets[i]] += blocks_wanted(*targets[i], *admitted[i]);
    if (admitted[i]->of_batch()) lines[targets[i]].push_back(admitted[i]);
  }
  return std::ranges::all_of(lines, [&](const auto& entry) {
    Worker* const target = entry.first;
    return wanted[target] + growth(*target, entry.second) <= static_cast<int64_t>(target->kv.available());
  });
}

/// One after the other they have gone where the load was least; longest first, the loads come out more even. Of no use,
/// and left as it is, where something of a prompt is held by a worker, or where workers differ. Those with a source
/// stay where the memory of their request is. Nothing of these is in a plan yet.
void Scheduler::spread(std::vector<Sequence*> admitted) {
  std::erase_if(admitted, [](const Sequence* s) {
    return s->worker == nullptr || s->computed > 0 || s->request.source;
  });
  if (admitted.size() < 2 || workers_.size() < 2 || !alike()) return;
  std::vector<Worker*> workers;
  std::vector<lanes::PlaceRoom> rooms;
  std::vector<int64_t> lengths;
  const bool of_batches = std::ranges::all_of(admitted, [](const Sequence* s) { return s->request.background; });
  for (const auto& [id, w] : workers_) {
    workers.push_back(w.get());
    rooms.push_back({room_for(*w, of_batches), static_cast<int64_t>(w->kv.available()), w->load()});
  }
  const auto room_of = [&](const Sequence* s) -> lanes::PlaceRoom& {
    return rooms[static_cast<size_t>(std::find(workers.begin(), workers.end(), s->worker) - workers.begin())];
  };
  // In blocks, so that what fits here fits into the cache.
  const int64_t block = workers.front()->kv.block_tokens();
  int64_t longest_before = 0;
  for (lanes::PlaceRoom& room : rooms) longest_before = std::max(longest_before, room.tokens /= block);
  for (const Sequence* s : admitted) {
    lanes::PlaceRoom& room = room_of(s);
    lengths.push_back(blocks_wanted(*s->worker, *s));
    ++room.sequences_max;
    room.tokens_max += lengths.back();
    room.tokens = std::max<int64_t>(0, room.tokens - lengths.back());
  }
  const auto placed = lanes::balance_by_length(lengths, 0, rooms);
  for (size_t i = 0; i < admitted.size(); ++i) {
    if (!placed[i]) return;
    rooms[*placed[i]].tokens += lengths[i];
  }
  const auto most =
      std::max_element(rooms.begin(), rooms.end(), [](const auto& a, const auto& b) { return a.tokens < b.tokens; });
  if (most->tokens >= longest_before) return;
  std::vector<Worker*> targets;
  for (const auto& place : placed) targets.push_back(workers[*place]);
  if (!foreseen(admitted, targets)) return;
  std::vector<std::pair<Sequence*, Worker*>> moved;
  for (size_t i = 0; i < admitted.size(); ++i) {
    if (admitted[i]->worker == targets[i]) continue;
    give_back_all(*admitted[i]->worker, *admitted[i]);
    std::erase(admitted[i]->worker->running, admitted[i]);
    moved.emplace_back(admitted[i], targets[i]);
  }
  for (const auto& [s, worker] : moved) enter(*worker, *s, 0);
}

}  // namespace moestro::orchestrator

// How the scheduler finds, holds and gives back KV blocks: prefixes that are there are not computed again.

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

/// Whether others can find its blocks. What a target's keys and values are depends on its source: that is in no key.
bool Scheduler::shares_blocks(const Sequence& s) const { return options_.prefix_cache && s.request.source == nullptr; }

/// The place of block `index` of a sequence in its chain; the block is full.
PrefixLink Scheduler::link(const Worker& worker, Sequence& s, int64_t index) {
  const uint32_t block = worker.kv.block_tokens();
  if (s.keys_block_tokens != block) s.keys.clear();
  s.keys_block_tokens = block;
  if (s.keys.empty()) s.keys.push_back(hasher_.root(s.request.prefix_domain));
  const std::span<const TokenId> tokens(s.tokens);
  for (auto k = s.keys.size() - 1; k <= static_cast<size_t>(index); ++k)
    s.keys.push_back(hasher_.next(s.keys[k], tokens.subspan(k * block, block)));
  const auto k = static_cast<size_t>(index);
  return {s.keys[k + 1], s.keys[k], tokens.subspan(k * block, block)};
}

/// Leading blocks that `s` need not compute on `worker`: the most such that every block is there that the next position
/// sees, and the state behind them if there are states.
int64_t Scheduler::reusable_blocks(const Worker& worker, Sequence& s) {
  const int64_t block = worker.kv.block_tokens(), have = s.computed / block;
  if (!shares_blocks(s) || s.computed % block != 0) return have;
  const int64_t end = s.reusable_max() / block;
  const int64_t sinks = worker.window.sink_blocks();
  int64_t best = have, run_begin = have;  // blocks [run_begin, k] are there
  s.fork = 0;
  for (int64_t k = have; k < end; ++k) {
    const PrefixLink wanted = link(worker, s, k);
    if (!worker.kv.find(wanted) && !worker.kv.find_on_host(wanted)) {
      if (k < sinks || worker.limits.kv_window == 0) break;
      run_begin = k + 1;
    } else if (std::max(have, worker.window.first_seen((k + 1) * block)) >= run_begin) {
      if (has_state_for(worker, s, wanted)) best = k + 1;
      s.fork = (k + 1) * block;
    }
  }
  return best;
}

/// Takes over blocks up to `end`, which reusable_blocks() gave; its own at these places are unwritten. All are held
/// before room is made for those that come from host memory: making room must not take what is still to be taken over.
void Scheduler::reuse(Worker& worker, Sequence& s, int64_t end) {
  const int64_t block = worker.kv.block_tokens(), have = s.computed / block;
  if (end <= have) return;
  std::vector<std::pair<int64_t, uint32_t>> on_host;  // place, block
  for (int64_t k = have; k < end; ++k) {
    const auto place = static_cast<size_t>(k);
    if (place == s.blocks.size()) s.blocks.push_back(kNoBlock);
    uint32_t found = kNoBlock;
    if (worker.window.sees(k, end * block)) {
      const PrefixLink wanted = link(worker, s, k);
      if (const auto id = worker.kv.find(wanted)) {
        worker.kv.share(found = *id);
      } else {
        const auto host_block = worker.kv.find_on_host(wanted);
        MOESTRO_CHECK(host_block.has_value(), "a prefix block that was just found is gone");
        worker.kv.hold_on_host(*host_block);
        on_host.emplace_back(k, *host_block);
        continue;
      }
    }
    if (s.blocks[place] != kNoBlock) worker.kv.give_back(s.blocks[place]);
    s.blocks[place] = found;
  }
  if (worker.has_states()) {
    const auto slot = worker.states.find(link(worker, s, end - 1));
    MOESTRO_CHECK(slot.has_value(), "a state that was just found is gone");
    worker.states.share(*slot);
    if (s.resumes != kNoBlock) worker.states.give_back(s.resumes);
    s.resumes = *slot;
  }
  for (const auto& [k, host_block] : on_host) {
    uint32_t& place = s.blocks[static_cast<size_t>(k)];
    if (place == kNoBlock) place = *worker.kv.take();
    worker.kv.bring_in(host_block, place, link(worker, s, k));
  }
  s.blocks_sent = std::min(s.blocks_sent, static_cast<uint32_t>(have));
  s.computed = end * block;
  // What a sequence that was sent back finds of itself is no reuse of a prefix.
  const int64_t spared = std::max<int64_t>(0, std::min(s.computed, s.prompt()) - s.reached);
  reused_tokens_ += static_cast<uint64_t>(spared);
  s.cached_tokens += spared;
  s.reached = std::max(s.reached, s.computed);
  leave_behind(worker, s);
}

/// Makes the block table cover `tokens`; takes nothing and returns false if there are too few blocks.
bool Scheduler::grow(Worker& worker, Sequence& s, int64_t tokens) {
  const uint32_t want = worker.kv.needed(tokens);
  if (want > s.blocks.size() + worker.kv.available()) return false;
  while (s.blocks.size() < want) s.blocks.push_back(*worker.kv.take());
  return true;
}

/// Blocks that became full between position `from` and what is computed now can be found by others from now on.
void Scheduler::publish(Worker& worker, Sequence& s, int64_t from) {
  if (!shares_blocks(s)) return;
  const int64_t block = worker.kv.block_tokens();
  for (int64_t k = from / block; k < s.computed / block; ++k)
    if (const uint32_t id = s.blocks[static_cast<size_t>(k)]; id != kNoBlock) worker.kv.publish(id, link(worker, s, k));
}

/// Gives back the blocks that no query of `s` will see again.
void Scheduler::leave_behind(Worker& worker, Sequence& s) {
  const int64_t end = std::min(worker.window.first_seen(s.computed), static_cast<int64_t>(s.blocks.size()));
  for (int64_t k = std::max(s.blocks_left, worker.window.sink_blocks()); k < end; ++k) {
    uint32_t& id = s.blocks[static_cast<size_t>(k)];
    if (id != kNoBlock) worker.kv.give_back(std::exchange(id, kNoBlock));
  }
  s.blocks_left = std::max(s.blocks_left, end);
}

/// Gives all blocks back, the last first, so that room is made at the ends of chains. What is full stays to be found.
void Scheduler::give_back_all(Worker& worker, Sequence& s) {
  const int64_t block = worker.kv.block_tokens();
  for (auto k = static_cast<int64_t>(s.blocks.size()) - 1; k >= 0; --k) {
    const uint32_t id = s.blocks[static_cast<size_t>(k)];
    if (id == kNoBlock) continue;
    if (shares_blocks(s) && (k + 1) * block <= s.computed) worker.kv.publish(id, link(worker, s, k));
    worker.kv.give_back(id);
  }
  let_go_of_state(worker, s);
  let_go_of_memory(worker, s);
  s.blocks.clear();
  s.blocks_sent = 0;
  s.history_sent = 0;
  s.blocks_left = 0;
}

std::string Scheduler::inconsistency() const {
  for (const auto& [id, worker] : workers_) {
    if (!worker->kv.consistent() || !worker->states.consistent()) return "the lists and the index of KV blocks differ";
    std::vector<uint32_t> holders(worker->kv.total());
    for (const Sequence* s : worker->running) {
      const size_t block = worker->kv.block_tokens();
      for (size_t k = 0; k < s->blocks.size(); ++k) {
        const uint32_t b = s->blocks[k];
        if (b == kNoBlock && worker->window.sees(static_cast<int64_t>(k), s->computed))
          return "a block in view was given back";
        if (b == kNoBlock) continue;
        ++holders[b];
        const auto held = worker->kv.published_tokens(b);
        const std::span<const TokenId> own(s->tokens);
        if (!held.empty() && ((k + 1) * block > own.size() ||
                              !std::equal(held.begin(), held.end(), own.subspan(k * block, block).begin())))
          return "a published block has other tokens than its holder";
      }
    }
    if (std::string why = memories_inconsistency(*worker, holders); !why.empty()) return why;
    std::vector<uint32_t> users(worker->states.total());
    const auto use = [&users](uint32_t slot) {
      if (slot != kNoBlock) ++users[slot];
    };
    for (const Sequence* s : worker->running) {
      if (worker->has_states() && s->state == kNoBlock) return "a running sequence has no slot for its state";
      use(s->state), use(s->resumes);
    }
    for (const Flight& flight : worker->flights)
      for (const Part& part : flight.parts) {
        use(part.resumes);
        for (const StateWrite& kept : part.kept) use(kept.slot);
      }
    for (uint32_t slot = 0; slot < worker->states.total(); ++slot)
      if (users[slot] != worker->states.holders(slot))
        return "state slot " + std::to_string(slot) + " has another number of holders than its count";
    for (uint32_t b = 0; b < worker->kv.total(); ++b)
      if (holders[b] != worker->kv.holders(b))
        return "block " + std::to_string(b) + " has another number of holders than its count";
  }
  return {};
}

}  // namespace moestro::orchestrator

// Who is given to a worker next, and to which one.

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "common/check.h"
#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

namespace {
/// Who has aged keeps to a flow of its own: an API key may be named as its batch is.
std::string aged_flow(const std::string& flow) { return "batch\n" + flow; }
}  // namespace

FairQueue& Scheduler::queue_of(const Sequence& s) { return s.of_batch() ? batches_ : interactive_; }

void Scheduler::enqueue(Sequence& s, bool first) {
  FairQueue& queue = queue_of(s);
  if (s.flow == nullptr) s.flow = &queue.enter(s.request.flow);
  if (s.version != 0 && !is_everywhere(s.version)) {
    s.apart = true;
    s.without_worker_since = now_;
    apart_.insert(first ? apart_.begin() : apart_.end(), &s);
    return;
  }
  const FairQueue::Waiting waiting{s.request.id, s.request.priority};
  first ? queue.push_front(*s.flow, waiting) : queue.push_back(*s.flow, waiting);
  aged_waiting_ += s.aged ? 1 : 0;
  if (s.of_batch()) next_aging_ = std::min(next_aging_, s.further_at + options_.batch_aging);
}

void Scheduler::dequeue(Sequence& s) {
  if (std::exchange(s.apart, false)) {
    std::erase(apart_, &s);
    return;
  }
  queue_of(s).erase(*s.flow, s.request.id);
  aged_waiting_ -= s.aged ? 1 : 0;
}

/// Sequences of batches that have waited too long go among the others, with the place and the rights of those.
void Scheduler::age() {
  if (batches_.empty() || now_ < next_aging_) return;
  next_aging_ = now_ + options_.batch_aging;
  for (const SequenceId id : batches_.waiting()) {
    Sequence& s = *find(id);
    const Nanos due = s.further_at + options_.batch_aging;
    if (due > now_) {
      next_aging_ = std::min(next_aging_, due);
      continue;
    }
    dequeue(s);
    batches_.leave(*s.flow);
    s.aged = true;
    s.flow = &interactive_.enter(aged_flow(s.request.flow));
    enqueue(s, /*first=*/false);
  }
}

/// Sends a batch's sequence back from a worker that could hold `s` and take a plan now; the youngest. False if there is
/// none. What is under way of it is lost: a token, beside all those that are computed again.
bool Scheduler::make_way(const Sequence& s) {
  const auto takes_a_plan = [this](const Worker& w) {
    return w.flights.size() < options_.steps_in_flight || is_overtaken(w);
  };
  Sequence* youngest = nullptr;
  for (const auto& [id, w] : workers_) {
    if (!takes(*w, s) || !holds(*w, s) || !takes_a_plan(*w)) continue;
    if (w->batch_sequences() <= batch_places(w->running.size(), options_.interactive_weight)) continue;
    if (room_for_readers(*w) == 0) continue;  // whoever of a batch goes, there is no place
    for (Sequence* other : w->running)
      if (other->of_batch() && (youngest == nullptr || other->admission > youngest->admission)) youngest = other;
  }
  if (youngest == nullptr) return false;
  preempt(*youngest->worker, *youngest);
  return true;
}

void Scheduler::preempt(Worker& worker, Sequence& s) {
  ++preemptions_;
  send_back(worker, s);
}

/// The blocks that a sequence is given when it is admitted: its prompt's, or on a worker with a window as many as it
/// will hold at once.
int64_t Scheduler::blocks_wanted(const Worker& worker, const Sequence& s) const {
  return worker.window.blocks_at_most(s.length() + 1, step_tokens_max(worker));
}

/// Tokens that a batch's sequence will have at its end if its answer has the length that is expected.
int64_t Scheduler::length_expected(const Worker& worker, const Sequence& s) const {
  const int64_t answer = answers_.expected(s.length() - s.prompt(), s.request.tokens_max);
  return std::clamp(s.prompt() + answer, s.length() + 1, std::max(worker.length_max(s), s.length() + 1));
}

/// Blocks that have to stay free when `coming` are admitted together, for answers that grow. Sequences of batches are
/// admitted only if they and the others of batches can be expected to end without any of them being sent back, which
/// costs computing them again; an interactive one as soon as it can begin, as those of batches in the places that they
/// are left in any case. A worker that has nothing else takes any. How long readers' answers will be is not known, and
/// one that grows may send lines back: a block each is kept for them.
int64_t Scheduler::growth(const Worker& worker, std::span<const Sequence* const> coming) {
  const size_t others = coming.size() - 1, running = worker.running.size();
  const bool left_a_place =
      worker.batch_sequences() + others < batch_places(running + coming.size(), options_.interactive_weight);
  if (!coming.front()->of_batch() || running + others == 0 || left_a_place) return worker.growth();
  futures_.clear();
  int64_t held = 0;
  const auto add = [&](const Sequence& one, int64_t blocks) {
    futures_.push_back({one.length(), length_expected(worker, one) - one.length()});
    held += blocks;
  };
  for (const Sequence* s : coming) add(*s, blocks_wanted(worker, *s));
  for (const Sequence* s : worker.running)
    if (s->request.background) add(*s, static_cast<int64_t>(s->blocks.size()) - s->blocks_left);
  // All grow alike, so those with the least to come end first and give back what they hold. The most is held when one
  // is about to end: by it and by those with more to come.
  std::ranges::sort(futures_, std::greater<>(), &Future::more);
  const int64_t block = worker.kv.block_tokens();
  int64_t peak = 0, total = 0;
  for (size_t k = 0; k < futures_.size(); ++k) {
    const int64_t more = futures_[k].more;
    total += futures_[k].length;
    if (k + 1 < futures_.size() && futures_[k + 1].more == more) continue;
    int64_t then = 0;
    if (worker.limits.kv_window > 0) {
      for (size_t i = 0; i <= k; ++i)
        then += worker.window.blocks_at_most(futures_[i].length + more, step_tokens_max(worker));
    } else {  // at most: as if the last block of each had one token
      then = (total + static_cast<int64_t>(k + 1) * (more + block - 1)) / block;
    }
    peak = std::max(peak, then);
  }
  return std::max(worker.growth(), peak - held + static_cast<int64_t>(worker.readers()));
}

/// The worker with room that has the fewest tokens to compute until this prompt is done: those it has already, and what
/// of `s` is not in its cache. So a prefix draws a sequence to its worker until that one is behind by more tokens than
/// the prefix has.
Scheduler::Place Scheduler::choose_worker(Sequence& s) {
  Place best;
  int64_t best_cost = 0;
  for (const auto& [id, w] : workers_) {
    if (!takes(*w, s) || !holds(*w, s) || room_for(*w, s.request.background) == 0) continue;
    const int64_t reused = reusable_blocks(*w, s);
    const int64_t memory = memory_wanted(*w, s);
    int64_t fresh = blocks_wanted(*w, s) + memory,
            found = 0;  // blocks to take, and cached ones to share, which are not to be taken meanwhile
    for (int64_t k = 0; k < reused; ++k) {
      if (!w->window.sees(k, reused * w->kv.block_tokens())) continue;
      const auto block = w->kv.find(link(*w, s, k));
      if (!block) continue;  // in host memory: it takes a block to bring it in
      --fresh;
      found += !w->kv.is_held(*block);
    }
    const Sequence* const coming[] = {&s};
    if (fresh + found + growth(*w, coming) > w->kv.available()) continue;
    const int64_t cost = w->load() + s.length() - reused * w->kv.block_tokens() + (memory > 0 ? s.source() : 0);
    if (best.worker == nullptr || cost < best_cost) best = {w.get(), reused}, best_cost = cost;
  }
  return best;
}

/// Tokens that admitted sequences still have to compute, by flow: who has many is not next. A source is of the first
/// that waits for it. And whether batches have fewer places than they are left in any case.
bool Scheduler::count_running() {
  interactive_.forget_pending();
  batches_.forget_pending();
  size_t running = 0, of_batches = 0;
  std::set<const Origin*> counted;
  for (const auto& [id, w] : workers_) {
    for (const Sequence* s : w->running) s->flow->pending += s->left();
    for (const auto& [source, memory] : w->memories) {
      if (memory.written) continue;
      const Sequence& first = first_that_waits(*w, memory);
      if (counted.insert(first.origin).second) first.flow->pending += std::ssize(*source);
    }
    running += w->running.size();
    of_batches += w->batch_sequences();
  }
  return of_batches < batch_places(running + 1, options_.interactive_weight);
}

void Scheduler::admit() {
  if (workers_.empty() || waiting() == 0) return;
  std::vector<Sequence*> admitted;
  admit_apart(admitted);
  admit_waiting(admitted);
  spread(std::move(admitted));
}

void Scheduler::admit_waiting(std::vector<Sequence*>& admitted) {
  bool batch_first = count_running();
  while (!interactive_.empty() || !batches_.empty()) {
    const bool other_class_waits = !interactive_.empty() && !batches_.empty();
    FairQueue& queue = interactive_.empty() || (other_class_waits && batch_first) ? batches_ : interactive_;
    Sequence& s = *find(*queue.next());
    if (!fits_somewhere(s)) {
      is_to_come_back(s) ? wait_for_room(s) : fail_for_want_of_room(s);
      continue;
    }
    Place place = choose_worker(s);
    while (place.worker == nullptr && !s.of_batch() && make_way(s)) place = choose_worker(s);
    if (place.worker == nullptr) {
      if (&queue == &interactive_ || interactive_.empty())
        return;  // the first in the queue waits for room; nobody overtakes it
      batch_first = false;
      continue;
    }
    admit_to(place, s, admitted);
    batch_first = count_running();
  }
}

void Scheduler::admit_to(const Place& place, Sequence& s, std::vector<Sequence*>& admitted) {
  dequeue(s);
  enter(*place.worker, s, place.reused_blocks);
  admitted.push_back(&s);
}

/// On a worker of its version; of any, where it has none: those of before will have the one that is served.
bool Scheduler::fits_somewhere(const Sequence& s) const {
  return std::any_of(workers_.begin(), workers_.end(), [&](const auto& entry) {
    const Worker& w = *entry.second;
    return (s.version == 0 || s.version == w.version) && holds(w, s);
  });
}

void Scheduler::fail_for_want_of_room(Sequence& s) {
  int64_t source = 0;
  for (const auto& [id, w] : workers_) source = std::max(source, source_max(*w));
  if (s.source() > source)
    return fail(s, invalid_argument("the source has " + std::to_string(s.source()) + " tokens; it is encoded in one "
                                    "step, and workers take at most " + std::to_string(source) +
                                    " (--step-tokens, and the model's context); shorten it"));
  if (s.request.source)
    return fail(s, invalid_argument("source, decoder_prompt and max_tokens together are " +
                                    std::to_string(s.source() + s.least_room()) + " tokens, more than any worker's KV "
                                    "cache or context holds; lower max_tokens or start workers with more "
                                    "--kv-tokens"));
  fail(s, invalid_argument("prompt and max_tokens together are " + std::to_string(s.least_room()) +
                           " tokens, more than any worker's KV cache or context holds; lower max_tokens or start "
                           "workers with more --kv-tokens"));
}

void Scheduler::enter(Worker& worker, Sequence& s, int64_t reused_blocks) {
  reuse(worker, s, reused_blocks);
  const auto held = std::count_if(s.blocks.begin(), s.blocks.end(), [](uint32_t b) { return b != kNoBlock; });
  const int64_t more = std::max<int64_t>(0, blocks_wanted(worker, s) - held);
  const int64_t covered = (static_cast<int64_t>(s.blocks.size()) + more) * worker.kv.block_tokens();
  MOESTRO_CHECK(grow(worker, s, std::min(s.length() + 1, covered)), "room was just found");
  hold_memory(worker, s);
  if (worker.has_states()) {
    const auto slot = worker.states.take();
    MOESTRO_CHECK(slot.has_value(), "a slot for its state was just found");
    s.state = *slot;
  }
  s.worker = &worker;
  s.admission = next_admission_++;
  worker.running.push_back(&s);
}

}  // namespace moestro::orchestrator

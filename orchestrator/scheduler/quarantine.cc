// Workers that die, and requests that may have been why.
//
// Who was in flight when a worker died is a suspect: until it is beyond where that happened, it is in no plan with
// others, and in none beside a plan with others. So when the next worker dies of it, it alone was in flight, and it is
// set apart: it fails, and no third worker meets it. Plans of suspects and of all others take turns: one who is
// innocent costs the others a step, not their answers.
//
// A source is suspected as such, for all that share it, wherever they are. It is with one worker at a time, and once a
// worker has encoded it, nobody is suspected of it any more.

#include <algorithm>
#include <map>

#include "orchestrator/scheduler/scheduler_parts.h"

namespace moestro::orchestrator {

void Scheduler::on(WorkerLost&& event) {
  const auto it = workers_.find(event.worker);
  if (it == workers_.end()) return;
  Worker& worker = *it->second;
  std::map<SequenceId, int64_t>
      in_flight;  // to which position; also of those that have been sent back or cancelled since
  Sources sources;
  for (const Flight& flight : worker.flights)
    for (const Part& part : flight.parts) {
      if (flight.lost || !event.died) continue;
      if (part.source == 0) in_flight[part.id] = std::max(in_flight[part.id], part.end());
      else if (std::ranges::find(sources, part.encoded) == sources.end()) sources.push_back(part.encoded);
    }
  // Last admitted first, so that the queue keeps the order of admission.
  const std::vector<Sequence*> orphans(worker.running.rbegin(), worker.running.rend());
  for (Sequence* s : orphans) send_back(worker, *s);
  for (const auto& source : sources) suspect_source(source.get());
  for (const auto& [id, end] : in_flight) suspect(id, end, sources);
  forget_worker(event.worker);
}

void Scheduler::forget_worker(WorkerId worker) {
  miss(*workers_.at(worker));
  workers_.erase(worker);
  if (workers_.empty())
    for (auto& [id, s] : sequences_) s->without_worker_since = now_;
}

/// It was in flight, to position `end`, when its worker died; `sources` were too, whose deaths are counted.
void Scheduler::suspect(SequenceId id, int64_t end, const Sources& sources) {
  Sequence* s = find(id);
  if (s == nullptr) return;
  s->alone_until = std::max(s->alone_until, end);
  if (!s->request.source || std::ranges::find(sources, s->request.source) == sources.end()) ++s->deaths;
  if (s->all_deaths() >= options_.deaths_max) quarantine(*s);
}

/// It was being encoded when the worker died: all that share it are suspected together. Its deaths are theirs as well.
void Scheduler::suspect_source(const std::vector<TokenId>* source) {
  const auto it = origins_.find(source);
  if (it == origins_.end()) return;
  Origin& origin = it->second;
  origin.alone = true;
  ++origin.deaths;
  std::vector<SequenceId> all;
  for (const auto& [id, s] : sequences_)
    if (s->origin == &origin && s->all_deaths() >= options_.deaths_max) all.push_back(id);
  std::sort(all.begin(), all.end());
  give_up(all, options_.deaths_max);
}

/// With it go those that have its prompt and seed and are no further: the other choices of its request.
void Scheduler::quarantine(Sequence& culprit) {
  const auto has_its_source = [&culprit](const Sequence& s) {
    return s.request.source == culprit.request.source ||
           (s.request.source && culprit.request.source && *s.request.source == *culprit.request.source);
  };
  std::vector<SequenceId> alike;
  for (const auto& [id, s] : sequences_)
    if (s->furthest <= culprit.furthest && s->request.sampling.seed == culprit.request.sampling.seed &&
        s->request.prompt == culprit.request.prompt && has_its_source(*s))
      alike.push_back(id);
  std::sort(alike.begin(), alike.end());
  alike.insert(alike.begin(), culprit.request.id);
  give_up(alike, culprit.all_deaths());
}

/// They fail; an id may be there twice.
void Scheduler::give_up(const std::vector<SequenceId>& ids, int deaths) {
  const Status error =
      internal_error("this request is quarantined: " + std::to_string(deaths) +
                     " workers died while they computed it, the last while it ran alone; it is not tried again");
  for (const SequenceId id : ids) {
    Sequence* s = find(id);
    if (s == nullptr) continue;
    ++quarantined_;
    Failed failed{id, error, /*quarantined=*/true};
    actions_.push_back(std::move(failed));
    remove(*s);
  }
}

/// The suspect whose turn it is; while there is one, nothing is sent ahead (may_plan). Nullopt: it is the turn of the
/// others.
std::optional<std::vector<Scheduler::Sequence*>> Scheduler::suspects_turn(Worker& worker) {
  const auto suspect = std::ranges::find_if(worker.running, [&](const Sequence* s) {
    return s->alone() && (!s->encodes() || may_encode(worker, *s));
  });
  if (suspect == worker.running.end()) return std::nullopt;
  const bool others =
      std::any_of(worker.running.begin(), worker.running.end(), [](const Sequence* s) { return !s->alone(); });
  if (worker.suspect_was_last && others) {
    worker.suspect_was_last = false;
    return std::nullopt;
  }
  worker.suspect_was_last = true;
  return std::vector<Sequence*>{*suspect};
}

}  // namespace moestro::orchestrator

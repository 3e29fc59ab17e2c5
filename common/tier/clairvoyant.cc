#include "common/tier/clairvoyant.h"

#include <algorithm>
#include <memory>

namespace moestro::tier {
namespace {

class Scheduler {
 public:
  Scheduler(std::span<const Visit> visits, size_t keys, int32_t slots, Nanos copy, int32_t horizon, bool keep)
      : visits_(visits),
        index_(visits, keys),
        slots_(static_cast<size_t>(slots)),
        copy_(copy),
        horizon_(horizon),
        keep_(keep),
        present_(keys) {
    const size_t n = visits.size();
    out_.visit_stall.resize(n), out_.visit_time.resize(n), out_.visit_hits.resize(n), out_.visit_fetches.resize(n);
  }

  FetchPlan run() {
    fetch();
    for (at_ = 0; at_ < visits_.size(); ++at_) visit();
    out_.time = now_;
    return std::move(out_);
  }

 private:
  void visit() {
    const Visit& v = visits_[at_];
    const Nanos begin = now_;
    left_ = v.keys;
    compute(v.attention);
    for (const Key key : v.keys) out_.visit_hits[at_] += present_[key] != 0;
    while (!left_.empty()) {
      const auto ready = std::ranges::find_if(left_, [this](Key key) { return present_[key] != 0; });
      if (ready == left_.end()) {
        if (!copying_) fetch();
        out_.visit_stall[at_] += std::max(Nanos{0}, ends_ - now_);
        now_ = std::max(now_, ends_);
        arrive();
        continue;
      }
      const Key key = *ready;
      const auto which = static_cast<size_t>(std::ranges::find(v.keys, key) - v.keys.begin());
      compute(v.took[which]);
      std::erase(left_, key);
      if (!keep_) leave(key);
      fetch();
    }
    ++cleared_;
    fetch();
    compute(v.after);
    out_.visit_time[at_] = now_ - begin;
  }
  void compute(Nanos took) {
    const Nanos until = now_ + took;
    while (copying_ && ends_ <= until) arrive();
    now_ = until;
  }
  void arrive() {
    present_[*copying_] = 1;
    resident_.push_back(*copying_);
    copying_.reset();
    fetch_at(ends_);
  }
  void fetch() { fetch_at(now_); }
  /// When `key` is used next, as seen now: in this visit only if it still has to be computed with.
  size_t next_use(Key key) const {
    if (cleared_ == at_ && !left_.empty() && std::ranges::find(left_, key) != left_.end()) return at_;
    return index_.next(key, began() ? at_ + 1 : at_);
  }
  bool began() const { return at_ < visits_.size() && (cleared_ > at_ || !left_.empty()); }

  void fetch_at(Nanos when) {
    if (copying_) return;
    const size_t last =
        horizon_ == 0 ? visits_.size() : std::min(visits_.size(), at_ + static_cast<size_t>(horizon_) + 1);
    const std::vector<Key>& first = began() ? left_ : (at_ < visits_.size() ? visits_[at_].keys : left_);
    for (const Key key : first)
      if (present_[key] == 0) return start(key, at_, when);
    for (clean_ = std::max(clean_, at_ + 1); clean_ < last; ++clean_)
      for (const Key key : visits_[clean_].keys)
        if (present_[key] == 0) return start(key, clean_, when);
  }
  void leave(Key key) {
    present_[key] = 0;
    std::erase(resident_, key);
    clean_ = std::min(clean_, next_use(key));
  }
  void start(Key key, size_t needed, Nanos when) {
    if (resident_.size() == slots_) {
      const Key out = *std::ranges::max_element(resident_, {}, [this](Key k) { return next_use(k); });
      if (next_use(out) <= needed) return;
      leave(out);
    }
    copying_ = key, ends_ = when + copy_;
    ++out_.fetches, ++out_.visit_fetches[std::min(at_, visits_.size() - 1)];
  }

  std::span<const Visit> visits_;
  VisitIndex index_;
  size_t slots_;
  Nanos copy_;
  int32_t horizon_;
  bool keep_;
  FetchPlan out_;
  std::vector<uint8_t> present_;
  std::vector<Key> resident_, left_;
  std::optional<Key> copying_;
  Nanos now_{0}, ends_{0};
  size_t at_ = 0, cleared_ = 0;  ///< visits whose experts are all computed with
  size_t clean_ = 0;             ///< between at_ and this one nothing is missing but what is being copied
};

}  // namespace

std::span<const int32_t> clairvoyant_horizons() {
  static constexpr int32_t kHorizons[] = {0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128};
  return kHorizons;
}

std::vector<Visit> plan_visits(const Routes& routes, std::span<const ReplayStep> steps, const ReplayTimes& times) {
  std::vector<Visit> visits;
  std::vector<StepUse> uses;
  for (size_t s = 0; s < steps.size(); ++s)
    for (int32_t layer = 0; layer < routes.layers; ++layer) {
      Visit visit;
      const auto more = static_cast<int64_t>(steps[s].tokens.size()) - 1;
      visit.attention = times.attention + times.attention_token * more;
      if (layer + 1 == routes.layers) visit.after = times.step;
      visit.decode = !steps[s].scan, visit.step = s;
      uses_of(routes, steps[s], layer, uses);
      for (const StepUse& use : uses) {
        visit.keys.push_back(static_cast<Key>(layer * routes.experts + use.expert));
        visit.took.push_back(times.expert + times.expert_token * (use.tokens - 1));
      }
      visits.push_back(std::move(visit));
    }
  return visits;
}

FetchPlan aggressive(std::span<const Visit> visits, size_t keys, int32_t slots, Nanos copy, int32_t horizon,
                     bool keep) {
  return Scheduler(visits, keys, slots, copy, horizon, keep).run();
}

Nanos least_time(std::span<const Visit> visits, size_t keys, int32_t slots, Nanos copy, bool keep) {
  const VisitIndex index(visits, keys);
  Nanos computing{0};
  uint64_t fetches = 0;
  std::vector<Key> resident;
  for (size_t v = 0; v < visits.size(); ++v) {
    computing += visits[v].attention + visits[v].after;
    for (const Nanos took : visits[v].took) computing += took;
    std::vector<Key> missing;
    for (const Key key : visits[v].keys)
      if (std::ranges::find(resident, key) == resident.end()) missing.push_back(key);
    for (const Key key : missing) {
      if (resident.size() == static_cast<size_t>(slots)) {
        const auto out = std::ranges::max_element(resident, {}, [&](Key k) { return index.next(k, v + 1); });
        resident.erase(out);
      }
      resident.push_back(key);
      ++fetches;
    }
    if (!keep) resident.clear();
  }
  return std::max(computing, copy * static_cast<int64_t>(fetches));
}

}  // namespace moestro::tier

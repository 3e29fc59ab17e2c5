#include "common/tier/visit_oracle.h"

#include <algorithm>

namespace moestro::tier {

void Visits::add(std::vector<Key> keys) {
  for (const Key key : keys) of_key_[key].push_back(visits_.size());
  visits_.push_back(std::move(keys));
}

size_t Visits::next(Key key, size_t from) const {
  const auto& of = of_key_[key];
  const auto it = std::ranges::lower_bound(of, from);
  return it == of.end() ? kNever : *it;
}

VisitOracle::VisitOracle(const Visits& visits) : visits_(visits), next_(visits.keys()) {
  for (Key key = 0; key < next_.size(); ++key) next_[key] = visits.next(key, 0);
}

void VisitOracle::at_layer(int32_t) {
  const size_t visit = begun_++;
  for (const Key key : visits_[visit]) next_[key] = visits_.next(key, begun_);
}

void VisitOracle::inserted(uint32_t key, uint32_t, const policy::Use&, bool) {
  std::erase(members_, key);
  members_.push_back(key);
}

std::optional<uint32_t> VisitOracle::victim(const policy::Wanted&, const policy::Judge& judge) {
  order_.clear();
  for (const Key key : members_) order_.emplace_back(next(key), key);
  std::ranges::make_heap(order_);  // the first is nearly always taken: what is not needed now is used later
  while (!order_.empty()) {
    std::ranges::pop_heap(order_);
    const Key key = order_.back().second;
    order_.pop_back();
    if (judge(key).kind == policy::Verdict::Kind::kTake) return key;
  }
  return std::nullopt;
}

double VisitOracle::heat(uint32_t key, double) const {
  const size_t when = next(key);
  return when == Visits::kNever ? 0 : 1 / (1 + static_cast<double>(when - begun_));
}

}  // namespace moestro::tier

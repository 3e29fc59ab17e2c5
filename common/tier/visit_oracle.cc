#include "common/tier/visit_oracle.h"

#include <algorithm>
#include <utility>

namespace moestro::tier {

void VisitOracle::inserted(uint32_t key, uint32_t, const policy::Use&, bool) {
  removed(key);
  members_.push_back(key);
}

void VisitOracle::removed(uint32_t key) { std::erase(members_, key); }

void VisitOracle::at_layer(int32_t) {
  if (std::exchange(began_, true)) ++visit_;
}

std::optional<uint32_t> VisitOracle::victim(const policy::Wanted&, const policy::Judge& judge) {
  order_.clear();
  for (const uint32_t key : members_) order_.emplace_back(next(key), key);
  std::ranges::make_heap(order_);  // the first is nearly always taken: what is not needed now is used later
  while (!order_.empty()) {
    std::ranges::pop_heap(order_);
    const uint32_t key = order_.back().second;
    order_.pop_back();
    if (judge(key).kind == policy::Verdict::Kind::kTake) return key;
  }
  return std::nullopt;
}

double VisitOracle::heat(uint32_t key, double) const {
  const size_t when = next(key);
  return when == VisitIndex::kNever ? 0 : 1 / (1 + static_cast<double>(when - visit_));
}

}  // namespace moestro::tier

#include "store/machine/prefetch_ledger.h"

namespace moestro::store {

uint64_t PrefetchLedger::evicted(uint32_t entry, uint32_t uses) {
  const auto found = open_.find(entry);
  if (found == open_.end()) return 0;
  const uint64_t wasted = uses == found->second.uses ? found->second.length : 0;
  if (wasted == 0) ++counters_.used;
  else ++counters_.wasted, counters_.wasted_bytes += wasted;
  open_.erase(found);
  counters_.unused = open_.size();
  return wasted;
}

void PrefetchLedger::settle(const std::function<uint32_t(uint32_t entry)>& uses) {
  counters_.used += std::erase_if(open_, [&](const auto& item) { return uses(item.first) != item.second.uses; });
  counters_.unused = open_.size();
}

}  // namespace moestro::store

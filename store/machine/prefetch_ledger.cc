#include "store/machine/prefetch_ledger.h"

namespace moestro::store {

void PrefetchLedger::evicted(uint32_t entry, uint64_t last_use) {
  const auto found = open_.find(entry);
  if (found == open_.end()) return;
  if (last_use > found->second.stamp) ++counters_.used;
  else ++counters_.wasted, counters_.wasted_bytes += found->second.length;
  open_.erase(found);
  counters_.unused = open_.size();
}

void PrefetchLedger::settle(const std::function<uint64_t(uint32_t entry)>& last_use) {
  counters_.used += std::erase_if(open_, [&](const auto& item) { return last_use(item.first) > item.second.stamp; });
  counters_.unused = open_.size();
}

}  // namespace moestro::store

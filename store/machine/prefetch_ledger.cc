#include "store/machine/prefetch_ledger.h"

namespace moestro::store {

void PrefetchLedger::evicted(uint32_t entry, uint32_t uses) {
  const auto found = open_.find(entry);
  if (found == open_.end()) return;
  if (uses != found->second.uses) ++counters_.used;
  else ++counters_.wasted, counters_.wasted_bytes += found->second.length;
  open_.erase(found);
  counters_.unused = open_.size();
}

void PrefetchLedger::settle(const std::function<uint32_t(uint32_t entry)>& uses) {
  counters_.used += std::erase_if(open_, [&](const auto& item) { return uses(item.first) != item.second.uses; });
  counters_.unused = open_.size();
}

}  // namespace moestro::store

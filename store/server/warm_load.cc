#include "store/server/warm_load.h"

#include <algorithm>

namespace moestro::store {

void WarmLoad::plan(std::vector<Item> items, TimePoint now) {
  progress_ = {};
  for (const Item& item : items) ++progress_.blobs, progress_.bytes += item.bytes;
  progress_.running = !items.empty();
  waiting_.assign(items.begin(), items.end());
  began_ = now;
}

void WarmLoad::settle(const Item& item, Fate fate) {
  if (fate == Fate::kUnderWay) return;
  std::erase_if(named_, [&](const Item& named) { return named.entry == item.entry; });
  if (fate == Fate::kThere) {
    ++progress_.blobs_there, progress_.bytes_there += item.bytes;
    return;
  }
  ++progress_.left_out;
  if (fate == Fate::kFailed) return;
  const auto [known, is_new] = too_long_.try_emplace(item.group, item.bytes);
  known->second = std::min(known->second, item.bytes);
}

std::vector<uint32_t> WarmLoad::next(uint64_t bytes_max, TimePoint now) {
  uint64_t under_way = 0;
  for (const Item& item : named_) under_way += item.bytes;
  std::vector<uint32_t> entries;
  while (!waiting_.empty()) {
    const Item item = waiting_.front();
    const auto limit = too_long_.find(item.group);
    const bool hopeless = limit != too_long_.end() && item.bytes >= limit->second;
    if (!hopeless && !named_.empty() && under_way + item.bytes > bytes_max) break;
    waiting_.pop_front();
    if (hopeless) {
      ++progress_.left_out;
      continue;
    }
    under_way += item.bytes;
    named_.push_back(item);
    entries.push_back(item.entry);
  }
  if (progress_.running && named_.empty()) {
    progress_.running = false;
    progress_.seconds = std::chrono::duration<double>(now - began_).count();
  }
  return entries;
}

void WarmLoad::forget(uint32_t first, uint32_t count) {
  const auto gone = [&](const Item& item) {
    if (item.entry < first || item.entry - first >= count) return false;
    --progress_.blobs, progress_.bytes -= item.bytes;
    return true;
  };
  std::erase_if(waiting_, gone);
  std::erase_if(named_, gone);
}

WarmLoad::Progress WarmLoad::progress(TimePoint now) const {
  Progress p = progress_;
  if (p.running) p.seconds = std::chrono::duration<double>(now - began_).count();
  return p;
}

std::vector<uint32_t> WarmLoad::outstanding() const {
  std::vector<uint32_t> entries;
  for (const Item& item : named_) entries.push_back(item.entry);
  for (const Item& item : waiting_) entries.push_back(item.entry);
  return entries;
}

}  // namespace moestro::store

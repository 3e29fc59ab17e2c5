#include "store/server/arena_state.h"

#include <algorithm>

#include "common/shm/use_clock.h"

namespace moestro::store {

void ArenaState::set_word(uint32_t entry, Residency state, uint64_t generation) {
  files_.entry(entry).word.store(ResidencyWord::pack(state, generation), std::memory_order_seq_cst);
}

void ArenaState::set_place(uint32_t entry, uint64_t offset, const ContentHash& content) {
  files_.entry(entry).offset.store(offset, std::memory_order_relaxed);  // published by the word
  files_.entry(entry).content_low.store(content.low, std::memory_order_relaxed);
  files_.entry(entry).content_high.store(content.high, std::memory_order_relaxed);
}

void ArenaState::set_alias(uint32_t entry, uint32_t first) {
  files_.entry(entry).alias.store(first + 1, std::memory_order_release);
}

void ArenaState::clear_alias(uint32_t entry) { files_.entry(entry).alias.store(0, std::memory_order_release); }

void ArenaState::set_length(uint32_t entry, uint64_t bytes) {
  files_.entry(entry).length.store(bytes, std::memory_order_relaxed);
}

void ArenaState::note_wrong(uint32_t entry) {
  files_.entry(entry).found_wrong.fetch_add(1, std::memory_order_seq_cst);
  files_.table().found_wrong.fetch_add(1, std::memory_order_seq_cst);
}

bool ArenaState::pinned(uint32_t entry) const {
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot)
    if (files_.has_slot(slot) && PinWord::pinned(files_.pin_word(slot, entry).load(std::memory_order_seq_cst)))
      return true;
  return false;
}

UseNote ArenaState::uses(uint32_t entry) const {
  UseNote note;
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    if (!files_.has_slot(slot)) continue;
    const uint64_t word = files_.pin_word(slot, entry).load(std::memory_order_relaxed);
    note.stamp = std::max(note.stamp, PinWord::stamp(word));
    note.sixteenths += PinWord::uses(word);
  }
  note.stamp = std::min(note.stamp, stamp_now());  // a worker cannot claim uses that are yet to come
  note.sixteenths &= PinWord::kUsesMask;
  return note;
}

/// A slot that has gone, or whose count fell because someone else holds it now, begins anew; what it had counted stays.
uint64_t ArenaState::add_up(Total& total, std::atomic<uint64_t> PinsHeader::*member) const {
  for (uint32_t slot = 0; slot < kWorkerSlotsMax; ++slot) {
    const uint64_t count =
        files_.has_slot(slot) ? (files_.pins_header(slot).*member).load(std::memory_order_relaxed) : 0;
    if (count > total.counted[slot]) total.sum += count - total.counted[slot];
    total.counted[slot] = count;
  }
  return total.sum;
}

uint64_t ArenaState::uses_of_all() const { return add_up(uses_, &PinsHeader::uses); }
uint64_t ArenaState::hits_of_all() const { return add_up(hits_, &PinsHeader::hits); }
uint64_t ArenaState::misses_of_all() const { return add_up(misses_, &PinsHeader::misses); }

uint64_t ArenaState::stamp_now() const { return shm::use_stamp(); }

void ArenaState::set_share(uint32_t slot, uint64_t bytes) {
  files_.table().share_bytes[slot].store(bytes, std::memory_order_relaxed);
}

void ArenaState::set_window_share(uint32_t slot, uint32_t places) {
  files_.table().window_share[slot].store(places, std::memory_order_relaxed);
}

void ArenaState::set_pin_bytes_min(uint64_t bytes) {
  files_.table().pin_bytes_min.store(bytes, std::memory_order_relaxed);
}

}  // namespace moestro::store

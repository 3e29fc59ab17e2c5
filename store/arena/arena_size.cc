#include "store/arena/arena_size.h"

#include <algorithm>

namespace moestro::store {
namespace {

constexpr uint64_t kKeepFree = 256ULL << 20;  ///< of what is free, when the size is ours to choose

std::string mib(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

Status check_asked(uint64_t bytes, const ArenaWish& wish, const ArenaRoom& room) {
  const std::string arena = "an arena of " + mib(bytes);
  if (bytes > room.place_bytes && room.set_aside)
    return exhausted(arena + " does not fit in the huge pages set aside for " + room.place + ", of which " + mib(room.place_bytes) +
                     " are free: raise vm.nr_hugepages, or lower --dram");
  if (bytes > room.place_bytes)
    return exhausted(arena + " does not fit in " + room.place + ", which has " + mib(room.place_bytes) +
                     " free: lower --dram, or give --arena-dir a larger tmpfs");
  if (!room.in_memory || room.set_aside) return Status::ok();
  if (bytes > room.left_bytes)
    return exhausted(arena + " does not fit in the " + mib(room.left_bytes) + " of memory that are left (limit: " + mib(room.limit_bytes) +
                     ", of " + room.limited_by + "): lower --dram" + (room.limited_by == "this machine" ? "" : ", or raise that limit"));
  if (bytes > minus(room.limit_bytes, wish.others))
    return exhausted(arena + " and " + mib(wish.others) + " for the workers (KV caches, scratch) are more than the " + mib(room.limit_bytes) +
                     " of " + room.limited_by + ": lower --dram, --kv-tokens or --workers, or take --kv-dtype f16");
  return Status::ok();
}

}  // namespace

uint64_t asked_arena_bytes(const ArenaWish& wish, uint64_t granule) {
  return std::min(*wish.asked, std::max(wish.needed, wish.minimum)) / granule * granule;
}

Result<uint64_t> choose_arena_bytes(const ArenaWish& wish, const ArenaRoom& room, uint64_t granule) {
  const uint64_t needed = std::max(wish.needed, wish.minimum);
  if (wish.asked) {
    const uint64_t bytes = asked_arena_bytes(wish, granule);
    MOESTRO_RETURN_IF_ERROR(check_asked(bytes, wish, room));
    return bytes;
  }
  uint64_t free = room.place_bytes;
  if (room.in_memory && !room.set_aside) {
    const uint64_t left = minus(room.left_bytes, wish.others);
    free = std::min(free, left > kKeepFree ? left - kKeepFree : left);
  }
  const uint64_t bytes = std::min(needed, free) / granule * granule;
  if (bytes < wish.minimum) {
    const bool by_place = room.place_bytes < wish.minimum;
    return exhausted("the arena needs at least " + mib(wish.minimum) + " and there is room for " + mib(bytes) + " in " + room.place + ": " +
                     (by_place ? "it has " + mib(room.place_bytes) + " free; give --arena-dir a larger tmpfs"
                               : mib(room.left_bytes) + " of memory are left (limit: " + mib(room.limit_bytes) + ", of " + room.limited_by + "), " +
                                     mib(wish.others) + " of them for the workers; lower --kv-tokens or --workers, or raise the limit"));
  }
  return bytes;
}

}  // namespace moestro::store

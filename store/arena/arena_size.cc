#include "store/arena/arena_size.h"

#include <algorithm>

#include "common/units.h"

namespace moestro::store {
namespace {

constexpr uint64_t kKeepFree = 256ULL << 20;  ///< of what is free, when the size is ours to choose
constexpr uint64_t kMiB = 1 << 20;

uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

std::string pages_missing(uint64_t bytes, const ArenaRoom& room) {
  const uint64_t page = std::max<uint64_t>(room.page_bytes, 4096);
  const uint64_t missing = (minus(bytes, room.place_bytes) + page - 1) / page;
  return "set aside " + std::to_string(missing) + " more pages of " + std::to_string(page >> 10) +
         " KiB (vm.nr_hugepages)";
}

/// For an arena of so many bytes.
std::string larger_place(uint64_t bytes, const ArenaRoom& room) {
  if (room.mount.empty()) return "give --arena-dir a larger tmpfs";
  const uint64_t size = room.mount_bytes + minus(bytes, room.place_bytes);
  return "make that tmpfs larger (mount -o remount,size=" + std::to_string((size + kMiB - 1) / kMiB) + "M " +
         room.mount + "; a container's volume: its own size), or give --arena-dir another";
}

/// What it may take of memory if its size is ours to choose.
uint64_t memory_to_take(const ArenaRoom& room) {
  const uint64_t left = room.left_beside.bytes;
  return left > kKeepFree ? left - kKeepFree : left;
}

std::string in_words(const machine::MemoryBound& bound) {
  return "limit: " + mib(bound.limit_bytes) + ", of " + bound.whose;
}

Status check_asked(uint64_t bytes, const ArenaWish& wish, const ArenaRoom& room) {
  const std::string arena = "an arena of " + mib(bytes);
  if (bytes > room.place_bytes && room.set_aside)
    return exhausted(arena + " does not fit in the huge pages set aside for " + room.place + ", of which " +
                     mib(room.place_bytes) + " are free: " + pages_missing(bytes, room) + ", or lower --dram");
  if (bytes > room.place_bytes)
    return exhausted(arena + " does not fit in " + room.place + ", which has " + mib(room.place_bytes) +
                     " free: lower --dram, or " + larger_place(bytes, room));
  if (!room.in_memory || room.set_aside) return Status::ok();
  if (bytes > room.left.bytes)
    return exhausted(arena + " does not fit in the " + mib(room.left.bytes) + " of memory that are left (" +
                     in_words(room.left) + "): lower --dram" +
                     (room.left.whose == "this machine" ? "" : ", or raise that limit"));
  if (bytes > room.limit_beside.bytes)
    return exhausted(arena + " and " + mib(wish.others) + " for the workers (KV caches, scratch) are more than the " +
                     mib(room.limit_beside.limit_bytes) + " of " + room.limit_beside.whose +
                     ": lower --dram, --kv-tokens or --workers, or take --kv-dtype f16");
  return Status::ok();
}

std::string too_little(uint64_t bytes, const ArenaWish& wish, const ArenaRoom& room) {
  const std::string what = wish.layers_take_turns ? ", whose layers then take turns, and an expert for each worker)"
                                                  : ", and the largest expert)";
  std::string why = "the arena needs at least " + mib(wish.minimum) + " (dense weights " + mib(wish.dense) + what +
                    ", and there is room for " + mib(bytes) + " in " + room.place + ": ";
  if (room.place_bytes < wish.minimum && room.set_aside)
    return why + "of its huge pages " + mib(room.place_bytes) + " are free; " + pages_missing(wish.minimum, room);
  if (room.place_bytes < wish.minimum)
    return why + "it has " + mib(room.place_bytes) + " free; " + larger_place(wish.minimum, room);
  return why + mib(room.left.bytes) + " of memory are left (" + in_words(room.left_beside) +
         "), and the workers need " + mib(wish.others) + "; lower --kv-tokens or --workers, or raise the limit";
}

}  // namespace

std::optional<uint64_t> asked_arena_bytes(const ArenaWish& wish, uint64_t granule) {
  if (!wish.asked) return std::nullopt;
  return std::min(*wish.asked, std::max(wish.needed, wish.minimum)) / granule * granule;
}

Result<uint64_t> choose_arena_bytes(const ArenaWish& wish, const ArenaRoom& room, uint64_t granule) {
  if (const auto asked = asked_arena_bytes(wish, granule)) {
    MOESTRO_RETURN_IF_ERROR(check_asked(*asked, wish, room));
    return *asked;
  }
  uint64_t free = room.place_bytes;
  if (room.in_memory && !room.set_aside) free = std::min(free, memory_to_take(room));
  const uint64_t bytes = std::min(std::max(wish.needed, wish.minimum), free) / granule * granule;
  if (bytes < wish.minimum) return exhausted(too_little(bytes, wish, room));
  return bytes;
}

std::string kept_small_by_place(const ArenaWish& wish, const ArenaRoom& room, uint64_t bytes) {
  if (wish.asked || room.set_aside || bytes >= wish.needed) return {};
  const uint64_t wanted = std::min(wish.needed, memory_to_take(room));
  if (!room.in_memory || wanted / kMiB <= bytes / kMiB) return {};
  return "the packs need " + mib(wish.needed) + " and memory has room for " + mib(wanted) + " of it, but " +
         room.place + " only for " + mib(bytes) + ": " + larger_place(wanted, room);
}

}  // namespace moestro::store

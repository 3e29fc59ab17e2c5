#include "kernels/cuda/emulator/device_region.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#include "common/check.h"

namespace moestro::kernels::cuda::emulated {
namespace {

constexpr uint64_t kRegionBytes = uint64_t{1} << 40;
constexpr uint64_t kHugePage = uint64_t{2} << 20;  // protecting small ones takes a hundred times as long
constexpr uint64_t kRegionAlignment = 256;  // cudaMalloc's
constexpr uint64_t kBehindBytes = 256;  // at least so many lie behind each allocation
constexpr char kNaN = static_cast<char>(0xff);

uint64_t rounded_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

/// Where nothing is allocated kernels find no memory that the address sanitizer lets them touch.
#if defined(__SANITIZE_ADDRESS__)
void forbid(char* at, uint64_t bytes) { __asan_poison_memory_region(at, bytes); }
void permit(char* at, uint64_t bytes) { __asan_unpoison_memory_region(at, bytes); }
#else
void forbid(char*, uint64_t) {}
void permit(char*, uint64_t) {}
#endif

class Region {
 public:
  Region();
  void* allocate(uint64_t bytes);
  void release(void* memory);
  void enter();
  void leave();
  void when_open(std::function<void()> work);
  bool has(const void* at) const { return at >= base_ && at < base_ + kRegionBytes; }

 private:
  struct Taken {
    uint64_t bytes, room;  ///< as asked for, and with what lies behind
  };
  void protect(int mode);
  void when_open_locked(std::function<void()> work);
  void fill(uint64_t at, const Taken& fresh);
  void check_and_fill(uint64_t at, const Taken& old);
  uint64_t place_for(uint64_t room);
  void give_back(uint64_t at, uint64_t room);

  char* base_;
  std::mutex mutex_;
  std::map<uint64_t, Taken> taken_;   ///< by offset
  std::map<uint64_t, uint64_t> free_;  ///< room by offset; no two are neighbours
  uint64_t end_ = 0;                  ///< nothing behind it was ever allocated
  uint64_t inside_ = 0;               ///< DeviceAccess that are there
  /// What is done when the region is next opened, for opening it takes microseconds. Empty while it is open.
  std::vector<std::function<void()>> pending_;
};

/// Never destroyed: threads may still copy when a process ends.
Region& region() {
  static Region& the = *new Region;
  return the;
}

struct sigaction before_us;

/// Says what has happened, and leaves the rest to those who were asked before: the access is tried again.
void say_what_was_touched(int signal, siginfo_t* info, void*) {
  constexpr char kWords[] =
      "emulated CUDA device: device memory was touched outside kernels and copies (the host used a pointer to device "
      "memory as its own), or where nothing is allocated\n";
  if (region().has(info->si_addr)) (void)!::write(2, kWords, sizeof kWords - 1);
  ::sigaction(signal, &before_us, nullptr);
}

Region::Region() {
  void* base = ::mmap(nullptr, kRegionBytes + kHugePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MOESTRO_CHECK(base != MAP_FAILED, "addresses for the emulated device's memory");
  base_ = reinterpret_cast<char*>(rounded_up(reinterpret_cast<uint64_t>(base), kHugePage));
  (void)::madvise(base_, kRegionBytes, MADV_HUGEPAGE);  // slower where there are none
  struct sigaction ours{};
  ours.sa_sigaction = say_what_was_touched;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  MOESTRO_CHECK(::sigaction(SIGSEGV, &ours, &before_us) == 0, "a handler of SIGSEGV");
}

void Region::protect(int mode) {
  if (end_ > 0) MOESTRO_CHECK(::mprotect(base_, rounded_up(end_, kHugePage), mode) == 0, "protection of device memory");
}

void Region::enter() {
  const std::lock_guard lock(mutex_);
  if (inside_++ > 0) return;
  protect(PROT_READ | PROT_WRITE);
  for (const auto& work : std::exchange(pending_, {})) work();
}
void Region::leave() {
  const std::lock_guard lock(mutex_);
  if (--inside_ == 0) protect(PROT_NONE);
}
void Region::when_open(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  when_open_locked(std::move(work));
}
void Region::when_open_locked(std::function<void()> work) {
  if (inside_ == 0) pending_.push_back(std::move(work));
  else work();
}

/// The first that is large enough; kRegionBytes: none.
uint64_t Region::place_for(uint64_t room) {
  const auto found = std::find_if(free_.begin(), free_.end(), [&](const auto& f) { return f.second >= room; });
  if (found == free_.end()) {
    if (room > kRegionBytes - end_) return kRegionBytes;
    return std::exchange(end_, end_ + room);
  }
  const auto [at, has] = *found;
  free_.erase(found);
  if (has > room) free_[at + room] = has - room;
  return at;
}

void* Region::allocate(uint64_t bytes) {
  if (bytes >= kRegionBytes) return nullptr;
  const uint64_t room = rounded_up(bytes, kRegionAlignment) + kBehindBytes;
  const std::lock_guard lock(mutex_);
  const uint64_t at = place_for(room);
  if (at == kRegionBytes) return nullptr;
  const Taken fresh = taken_[at] = {bytes, room};
  if (inside_ > 0) protect(PROT_READ | PROT_WRITE);  // the end may be another
  when_open_locked([this, at, fresh] { fill(at, fresh); });
  return base_ + at;
}

void Region::release(void* memory) {
  const std::lock_guard lock(mutex_);
  const uint64_t at = static_cast<uint64_t>(static_cast<char*>(memory) - base_);
  const auto found = has(memory) ? taken_.find(at) : taken_.end();
  MOESTRO_CHECK(found != taken_.end(), "device memory is released that was not allocated");
  const Taken old = found->second;
  taken_.erase(found);
  when_open_locked([this, at, old] { check_and_fill(at, old); });
  give_back(at, old.room);
}

void Region::fill(uint64_t at, const Taken& fresh) {
  permit(base_ + at, fresh.room);
  std::memset(base_ + at, kNaN, fresh.room);
  forbid(base_ + at + rounded_up(fresh.bytes, kRegionAlignment), kBehindBytes);
}

/// Who still reads it finds NaN, or zeros where the system has so much of it back.
void Region::check_and_fill(uint64_t at, const Taken& old) {
  char *begin = base_ + at, *end = begin + old.room;
  permit(begin, old.room);
  MOESTRO_CHECK(std::all_of(begin + old.bytes, end, [](char c) { return c == kNaN; }),
                "a kernel or a copy has written behind its device memory");
  if (const uint64_t whole = rounded_up(at, kHugePage); whole + kHugePage <= at + old.room)
    (void)::madvise(base_ + whole, (at + old.room - whole) / kHugePage * kHugePage, MADV_DONTNEED);
  else std::memset(begin, kNaN, old.bytes);
  forbid(begin, old.room);
}

/// Joins it with what is free on either side.
void Region::give_back(uint64_t at, uint64_t room) {
  const auto ours = free_.emplace(at, room).first;
  if (const auto behind = std::next(ours); behind != free_.end() && at + room == behind->first) {
    ours->second += behind->second;
    free_.erase(behind);
  }
  if (ours == free_.begin()) return;
  if (const auto front = std::prev(ours); front->first + front->second == at) {
    front->second += ours->second;
    free_.erase(ours);
  }
}

}  // namespace

void* allocate_device(uint64_t bytes) { return region().allocate(bytes); }
void release_device(void* memory) {
  if (memory != nullptr) region().release(memory);
}
bool is_device(const void* at) { return region().has(at); }
void when_open(std::function<void()> work) { region().when_open(std::move(work)); }
DeviceAccess::DeviceAccess() { region().enter(); }
DeviceAccess::~DeviceAccess() { region().leave(); }

}  // namespace moestro::kernels::cuda::emulated

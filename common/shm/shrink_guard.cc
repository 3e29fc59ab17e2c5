#include "common/shm/shrink_guard.h"

#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace moestro::shm {
namespace {

constexpr int kGuardsMax = 512;

/// Read by a signal's handler: plain words. `begin` is set last and cleared first.
struct Range {
  std::atomic<uintptr_t> begin{0};
  std::atomic<size_t> bytes{0};
  std::atomic<bool> taken{false}, shrunk{false};
};
std::array<Range, kGuardsMax> g_ranges;
struct sigaction g_before;

/// The fault came from a load that this thread will do again: it then finds zeros. mmap is a system call and nothing
/// else, and no lock of this process is taken. A fault anywhere else is what it was before.
void on_fault(int signal, siginfo_t* info, void* context) {
  const auto at = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Range& range : g_ranges) {
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    const size_t bytes = range.bytes.load(std::memory_order_relaxed);
    if (begin == 0 || at < begin || at - begin >= bytes) continue;
    range.shrunk.store(true, std::memory_order_relaxed);
    void* const place = reinterpret_cast<void*>(begin);
    if (::mmap(place, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == place) return;
  }
  if ((g_before.sa_flags & SA_SIGINFO) != 0 && g_before.sa_sigaction != nullptr)
    return g_before.sa_sigaction(signal, info, context);
  ::sigaction(signal, &g_before, nullptr);  // it happens once more, and ends the process as it would have
}

void take_faults() {
  static const bool taken = [] {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return ::sigaction(SIGBUS, &action, &g_before) == 0;
  }();
  (void)taken;
}

}  // namespace

ShrinkGuard::ShrinkGuard(const MappedFile& file) {
  take_faults();
  for (int i = 0; i < kGuardsMax && place_ < 0; ++i) {
    bool free = false;
    if (g_ranges[static_cast<size_t>(i)].taken.compare_exchange_strong(free, true)) place_ = i;
  }
  if (place_ < 0) return;
  Range& range = g_ranges[static_cast<size_t>(place_)];
  range.shrunk.store(false), range.bytes.store(file.size());
  range.begin.store(reinterpret_cast<uintptr_t>(file.data()), std::memory_order_release);
}

bool ShrinkGuard::shrunk() const {
  return place_ >= 0 && g_ranges[static_cast<size_t>(place_)].shrunk.load(std::memory_order_relaxed);
}

void ShrinkGuard::release() {
  if (place_ < 0) return;
  Range& range = g_ranges[static_cast<size_t>(std::exchange(place_, -1))];
  range.begin.store(0, std::memory_order_release);
  range.taken.store(false, std::memory_order_release);
}

}  // namespace moestro::shm

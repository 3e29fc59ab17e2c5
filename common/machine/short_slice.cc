#include "common/machine/short_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace moestro::machine {
namespace {

constexpr uint64_t kShortestNs = 100'000;  // the scheduler's own bound

/// sched_setattr(2). The C library has no such type, and the kernel's header has a sched_param of its own.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = SCHED_OTHER;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime_ns = 0;  ///< of SCHED_OTHER: the slice
  uint64_t deadline_ns = 0, period_ns = 0;
};
static_assert(sizeof(Attributes) == 48, "the first version of it, which every kernel takes");

std::optional<Attributes> attributes() {
  Attributes now;
  if (::syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0 || now.policy != SCHED_OTHER) return std::nullopt;
  return now;
}

bool set_slice(Attributes now, uint64_t ns) {
  now.runtime_ns = ns;
  return ::syscall(SYS_sched_setattr, 0, &now, 0) == 0;
}

}  // namespace

uint64_t slice_ns() {
  const auto now = attributes();
  return now ? now->runtime_ns : 0;
}

ShortSlice::ShortSlice() {
  const auto now = attributes();
  if (now && set_slice(*now, kShortestNs)) former_ns_ = now->runtime_ns;
}

ShortSlice::~ShortSlice() {
  if (!former_ns_) return;
  if (const auto now = attributes()) set_slice(*now, *former_ns_);
}

}  // namespace moestro::machine

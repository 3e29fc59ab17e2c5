#pragma once
// A function with its own stack that can be suspended and resumed. Emulating a kernel switches tens of thousands of
// times per block, so on x86-64 a switch is a call that exchanges the stack pointer and six registers. Elsewhere, and
// under sanitizers, which follow nothing else, it is ucontext's, which makes a system call.

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define MOESTRO_FIBER_UCONTEXT 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MOESTRO_FIBER_UCONTEXT 1
#endif
#endif

#ifdef MOESTRO_FIBER_UCONTEXT
#include <ucontext.h>
#endif

namespace moestro::kernels::cuda::emulated {

class Fiber {
 public:
#ifdef MOESTRO_FIBER_UCONTEXT
  using Suspended = ucontext_t;
#else
  using Suspended = void*;  ///< top of its stack, where its registers lie
#endif

  /// Nothing runs yet. All fibers belong to one thread.
  Fiber(void (*main)(void*), void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs it until it leaves or its main function returns. In the latter case the next call begins main again.
  void resume();
  /// From within: returns to the caller of resume().
  void leave();
  /// From within: another fiber continues, and leaves to where this one would have.
  void hand_over(Fiber& next);
  /// It will be gone on with soon: its stack's top comes into the cache meanwhile.
  void expect() const {
#ifndef MOESTRO_FIBER_UCONTEXT
    for (int line = 0; line < 3; ++line) __builtin_prefetch(static_cast<const char*>(own_) + line * 64);
#endif
  }

 private:
  static constexpr std::size_t kStackBytes = std::size_t{128} << 10, kColours = 32, kColourBytes = 1088;
  static void enter();
  /// `own_` begins with enter().
  void prepare();

  void (*main_)(void*);
  void* argument_;
  void* stack_;
  std::size_t top_;  ///< of the stack, from its beginning
  Suspended own_{};
};

}  // namespace moestro::kernels::cuda::emulated

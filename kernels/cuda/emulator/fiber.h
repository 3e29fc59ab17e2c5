#pragma once
// A function with its own stack that can be suspended and resumed. It is entered through ucontext, then switched by
// g++'s own jumps, which save three registers and make no call: emulating a kernel switches tens of thousands of times
// per block.

#include <cstddef>
#include <ucontext.h>

namespace moestro::kernels::cuda::emulated {

/// What __builtin_setjmp fills.
using FiberJump = void* [5];

class Fiber {
 public:
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

 private:
  static constexpr std::size_t kStackBytes = std::size_t{128} << 10;
  static void enter(unsigned high, unsigned low);
  void loop();
  [[gnu::noinline]] void go_on();

  void (*main_)(void*);
  void* argument_;
  void* stack_;
  ucontext_t own_{};
  [[maybe_unused]] FiberJump own_jump_{};
  [[maybe_unused]] bool entered_ = false;
};

}  // namespace moestro::kernels::cuda::emulated

#pragma once
// A function with its own stack that can be suspended and resumed. It is entered through ucontext, then switched by
// setjmp and longjmp, which save no signal mask and so make no system call: emulating a kernel switches tens of
// thousands of times per block.

#include <csetjmp>
#include <cstddef>
#include <ucontext.h>

namespace moestro::kernels::cuda::emulated {

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
  void go_on();

  void (*main_)(void*);
  void* argument_;
  void* stack_;
  ucontext_t own_{};
  [[maybe_unused]] std::jmp_buf own_jump_{};
  [[maybe_unused]] bool entered_ = false;
};

}  // namespace moestro::kernels::cuda::emulated

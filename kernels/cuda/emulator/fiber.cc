// The checks of glibc's longjmp take a jump to another stack for a mistake.
#undef _FORTIFY_SOURCE

#include "kernels/cuda/emulator/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "common/check.h"

// Sanitizers follow ucontext, not jumps between stacks.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MOESTRO_FIBER_JUMPS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define MOESTRO_FIBER_JUMPS 0
#endif
#endif
#ifndef MOESTRO_FIBER_JUMPS
#define MOESTRO_FIBER_JUMPS 1
#endif

namespace moestro::kernels::cuda::emulated {

Fiber::Fiber(void (*main)(void*), void* argument) : main_(main), argument_(argument) {
  stack_ = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MOESTRO_CHECK(stack_ != MAP_FAILED, "memory for a fiber's stack");
  MOESTRO_CHECK(::mprotect(stack_, 4096, PROT_NONE) == 0, "a guard below a fiber's stack");
  MOESTRO_CHECK(::getcontext(&own_) == 0, "a context");
  own_.uc_stack.ss_sp = stack_;
  own_.uc_stack.ss_size = kStackBytes;
  own_.uc_link = nullptr;
  const auto self = reinterpret_cast<uintptr_t>(this);
  ::makecontext(&own_, reinterpret_cast<void (*)()>(enter), 2, static_cast<unsigned>(self >> 32),
                static_cast<unsigned>(self));
}

Fiber::~Fiber() { ::munmap(stack_, kStackBytes); }

void Fiber::enter(unsigned high, unsigned low) {
  reinterpret_cast<Fiber*>(static_cast<uintptr_t>(high) << 32 | low)->loop();
}

void Fiber::loop() {
  for (;;) {
    main_(argument_);
    leave();
  }
}

namespace {
// Where the last resume() was called.
[[maybe_unused]] ucontext_t outside;
[[maybe_unused]] std::jmp_buf outside_jump;
}  // namespace

#if MOESTRO_FIBER_JUMPS
void Fiber::go_on() {
  if (entered_) _longjmp(own_jump_, 1);
  entered_ = true;
  ::setcontext(&own_);
}
void Fiber::resume() {
  if (_setjmp(outside_jump) == 0) go_on();
}
void Fiber::leave() {
  if (_setjmp(own_jump_) == 0) _longjmp(outside_jump, 1);
}
void Fiber::hand_over(Fiber& next) {
  if (_setjmp(own_jump_) == 0) next.go_on();
}
#else
void Fiber::resume() { ::swapcontext(&outside, &own_); }
void Fiber::leave() { ::swapcontext(&own_, &outside); }
void Fiber::hand_over(Fiber& next) { ::swapcontext(&own_, &next.own_); }
#endif

}  // namespace moestro::kernels::cuda::emulated

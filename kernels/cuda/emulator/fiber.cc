#include "kernels/cuda/emulator/fiber.h"

#include <sys/mman.h>

#include "common/check.h"

#ifndef MOESTRO_FIBER_UCONTEXT
// Saves the registers that a call preserves, and the stack's top in *from; continues where `to` was saved. It returns
// by `ret`: fibers wait in the same place of the same kernel, so the processor predicts where to.
extern "C" void moestro_switch_stack(void** from, void* to);
__asm__(R"(
    .pushsection .text
    .p2align 4
    .globl moestro_switch_stack
    .hidden moestro_switch_stack
    .type moestro_switch_stack, @function
moestro_switch_stack:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size moestro_switch_stack, .-moestro_switch_stack
    .popsection
)");
#endif

namespace moestro::kernels::cuda::emulated {
namespace {

Fiber::Suspended outside;  ///< where the last resume() was called
Fiber* entering = nullptr;  ///< the fiber that was switched to last

#ifdef MOESTRO_FIBER_UCONTEXT
void switch_to(Fiber::Suspended& from, Fiber::Suspended& to) { ::swapcontext(&from, &to); }
#else
void switch_to(Fiber::Suspended& from, Fiber::Suspended& to) { moestro_switch_stack(&from, to); }
#endif

}  // namespace

Fiber::Fiber(void (*main)(void*), void* argument) : main_(main), argument_(argument) {
  // Stacks of a power of two would have their tops in the same few sets of every cache, and each switch would miss.
  static std::size_t fibers = 0;
  top_ = kStackBytes - fibers++ % kColours * kColourBytes;
  stack_ = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  MOESTRO_CHECK(stack_ != MAP_FAILED, "memory for a fiber's stack");
  MOESTRO_CHECK(::mprotect(stack_, 4096, PROT_NONE) == 0, "a guard below a fiber's stack");
  prepare();
}

Fiber::~Fiber() { ::munmap(stack_, kStackBytes); }

#ifdef MOESTRO_FIBER_UCONTEXT
void Fiber::prepare() {
  MOESTRO_CHECK(::getcontext(&own_) == 0, "a context");
  own_.uc_stack.ss_sp = stack_;
  own_.uc_stack.ss_size = top_;
  own_.uc_link = nullptr;
  ::makecontext(&own_, enter, 0);
}
#else
void Fiber::prepare() {
  // As moestro_switch_stack leaves a stack: six registers, and the address to return to. Above it is enter()'s own
  // return address, 8 bytes below a multiple of 16, as after a call; enter() never returns.
  constexpr std::size_t kRegisters = 6;
  void** top = static_cast<void**>(stack_) + top_ / sizeof(void*);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(enter);
  own_ = top - kRegisters;
}
#endif

void Fiber::enter() {
  Fiber& self = *entering;
  for (;;) {
    self.main_(self.argument_);
    self.leave();
  }
}

void Fiber::resume() {
  entering = this;
  switch_to(outside, own_);
}
void Fiber::leave() { switch_to(own_, outside); }
void Fiber::hand_over(Fiber& next) {
  entering = &next;
  switch_to(own_, next.own_);
}

}  // namespace moestro::kernels::cuda::emulated

#include "services/cli/bench/serve/interrupt.h"

#include <atomic>

namespace moestro::cli {
namespace {
std::atomic<bool> g_seen{false};
}

Interrupt::Interrupt() {
  g_seen = false;
  struct sigaction action = {};
  action.sa_handler = [](int) { g_seen = true; };
  ::sigaction(SIGINT, &action, &interrupt_);
  ::sigaction(SIGTERM, &action, &terminate_);
}

Interrupt::~Interrupt() {
  ::sigaction(SIGINT, &interrupt_, nullptr);
  ::sigaction(SIGTERM, &terminate_, nullptr);
}

bool Interrupt::seen() { return g_seen; }

}  // namespace moestro::cli

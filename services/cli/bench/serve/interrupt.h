#pragma once
// Ctrl-C and SIGTERM as something to look at, for work that has no event loop.

#include <csignal>

namespace moestro::cli {

/// For as long as it lives. One at a time.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  static bool seen();

 private:
  struct sigaction interrupt_ = {}, terminate_ = {};
};

}  // namespace moestro::cli

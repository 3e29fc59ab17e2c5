#pragma once
// Ctrl-C and SIGTERM as a flag, for work without an event loop.

#include <csignal>

namespace moestro::cli {

/// Catches the signals while it exists. One at a time.
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

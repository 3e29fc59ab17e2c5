#pragma once
// The terminal that `moestro top` draws on, and the signals it hears while it waits.

#include <signal.h>

#include <chrono>
#include <vector>

#include "services/cli/top/frame.h"

namespace moestro::cli {

/// Of stdout.
TerminalSize terminal_size();

/// Whether colours are to be written to stdout: it is a terminal that has them, and neither --no-color nor NO_COLOR
/// (no-color.org: set, and not empty) says otherwise.
bool colour_wanted(bool no_color);

/// Signals, taken where this waits, so that the terminal is given back as it was.
class Signals {
 public:
  enum class Heard { kNothing, kEnd, kResized, kSuspended };
  /// Those that end; and, where there is a Screen, those that concern it.
  explicit Signals(bool for_screen);
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  /// Waits until one comes, `until` at the latest.
  Heard wait(std::chrono::steady_clock::time_point until) const;

 private:
  sigset_t signals_{}, before_{};
};

/// The page in place of what was on the screen, which comes back at the end.
class Screen {
 public:
  Screen();
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  /// In one write, over what stands there: nothing flickers. `lines` fit into `size`.
  static void draw(const std::vector<Line>& lines, const TerminalSize& size, bool colour);
  /// Gives the screen back, stops this process as Ctrl-Z does, and takes it again when the process goes on.
  void suspend();

 private:
  static void take();
  static void give_back();
};

}  // namespace moestro::cli

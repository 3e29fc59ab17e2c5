#include "services/cli/top/terminal.h"

#include <pthread.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "services/cli/top/text_width.h"

namespace moestro::cli {
namespace {

/// Past stdio, whose buffer would send a page in pieces. A terminal that is gone is heard of as a signal.
void write_out(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written > 0) text.remove_prefix(static_cast<size_t>(written));
    else if (written < 0 && errno != EINTR) return;
  }
}

}  // namespace

TerminalSize terminal_size() {
  winsize size{};
  TerminalSize found;
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return found;
  if (size.ws_col > 0) found.columns = size.ws_col;
  found.rows = size.ws_row;
  return found;
}

bool colour_wanted(bool no_color) {
  const char *asked = std::getenv("NO_COLOR"), *kind = std::getenv("TERM");
  if (no_color || (asked != nullptr && *asked != '\0')) return false;
  return ::isatty(STDOUT_FILENO) == 1 && kind != nullptr && *kind != '\0' && std::string_view(kind) != "dumb";
}

Signals::Signals(bool for_screen) {
  sigemptyset(&signals_);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals_, signal);
  if (for_screen)
    for (const int signal : {SIGWINCH, SIGTSTP}) sigaddset(&signals_, signal);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
}

Signals::~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

Signals::Heard Signals::wait(std::chrono::steady_clock::time_point until) const {
  using namespace std::chrono;
  const auto left = std::max(nanoseconds(0), duration_cast<nanoseconds>(until - steady_clock::now()));
  const auto whole = duration_cast<seconds>(left);
  const timespec limit{whole.count(), (left - whole).count()};
  switch (sigtimedwait(&signals_, nullptr, &limit)) {
    case SIGINT:
    case SIGTERM: return Heard::kEnd;
    case SIGTSTP: return Heard::kSuspended;
    case SIGWINCH: return Heard::kResized;
    default: return Heard::kNothing;
  }
}

// The other screen, no cursor, and no wrapping: a character that this terminal draws wider than it is known to be ends
// at the edge.
void Screen::take() { write_out("\x1b[?1049h\x1b[?25l\x1b[?7l"); }
void Screen::give_back() { write_out("\x1b[?7h\x1b[?25h\x1b[?1049l"); }

Screen::Screen() { take(); }
Screen::~Screen() { give_back(); }

void Screen::suspend() {
  give_back();
  ::raise(SIGSTOP);
  take();
}

void Screen::draw(const std::vector<Line>& lines, const TerminalSize& size, bool colour) {
  // Terminals that know synchronized output (2026) show it all at once; others pass over it.
  std::string page = "\x1b[?2026h\x1b[H";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) page += '\n';
    page += lines[i].drawn(colour);
    // In the last column the cursor still stands on the last character: that would be erased.
    if (display_width(lines[i].text()) < size.columns) page += "\x1b[K";
  }
  if (lines.size() < size.rows) page += "\n\x1b[J";
  write_out(page + "\x1b[?2026l");
}

}  // namespace moestro::cli

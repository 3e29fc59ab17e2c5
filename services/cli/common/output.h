#pragma once
// Output that all commands share.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"
#include "services/cli/common/command.h"

namespace moestro::cli {

inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;

/// "moestro: MESSAGE" on stderr, kept to one line, and the exit code into `result`.
void fail(CommandResult& result, const Status& status, int exit_code = kExitFailed);

/// A note on stderr, after a progress line if there is one.
void note(std::string_view text);

/// Makes control characters other than tab visible, so that neither a file nor a server can control the terminal.
std::string one_line(std::string_view text);

/// "12.3k", "1.25M": three digits at most.
std::string readable_count(double count);

/// "1 line", "2 lines": what many of are called by an s more.
std::string counted(uint64_t n, const char* one);

/// Like printf, into a string of at most 511 bytes, for lines of tables.
std::string printed(const char* format, ...) __attribute__((format(printf, 1, 2)));

/// Progress of a long command on stderr: a bar that is redrawn on a terminal, otherwise a line every 5 seconds. Owned
/// by one thread.
class Progress {
 public:
  Progress(std::string label, uint64_t total);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `now_s`: any monotonic seconds. Draws at most ten times a second.
  void update(uint64_t done, std::string_view detail, double now_s);
  /// Ends the line; nothing is drawn after it.
  void finish();

 private:
  void draw(uint64_t done, std::string_view detail);
  std::string label_;
  uint64_t total_;
  bool terminal_;
  bool drawn_ = false, finished_ = false;
  double next_s_ = 0;
};

}  // namespace moestro::cli

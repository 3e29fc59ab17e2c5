#include "services/cli/common/output.h"

#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>

namespace moestro::cli {

std::string one_line(std::string_view text) {
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += ' ';
    } else if ((byte < 0x20 && c != '\t') || byte == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", byte);
      line += escaped;
    } else {
      line += c;
    }
  }
  return line;
}

void fail(CommandResult& result, const Status& status, int exit_code) {
  result.exit_code = exit_code;
  std::fprintf(stderr, "moestro: %s\n", one_line(status.message()).c_str());
}

void note(std::string_view text) {
  std::fprintf(stderr, "moestro: %s\n", one_line(text).c_str());
}

std::string readable_count(double count) {
  const char* suffix = "";
  if (count >= 1e9)
    count /= 1e9, suffix = "G";
  else if (count >= 1e6)
    count /= 1e6, suffix = "M";
  else if (count >= 1e4)
    count /= 1e3, suffix = "k";
  char text[32];
  const int decimals = count < 10 ? 2 : count < 100 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f%s", decimals, count, suffix);
  return text;
}

std::string counted(uint64_t n, const char* one) { return std::to_string(n) + " " + one + (n == 1 ? "" : "s"); }

std::string printed(const char* format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

Progress::Progress(std::string label, uint64_t total)
    : label_(std::move(label)), total_(total), terminal_(::isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  finish();
}

void Progress::update(uint64_t done, std::string_view detail, double now_s) {
  if (finished_ || (now_s < next_s_ && done < total_)) return;
  // The first plain line waits its 5 seconds: a short run prints its summary alone.
  const bool first_plain = !terminal_ && next_s_ == 0;
  next_s_ = now_s + (terminal_ ? 0.1 : 5.0);
  if (!first_plain && (terminal_ || done < total_)) draw(done, detail);
}

void Progress::draw(uint64_t done, std::string_view detail) {
  const double share = total_ == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total_);
  std::string line = label_ + " ";
  if (terminal_) {
    constexpr int kWidth = 24;
    const int filled = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
    line += "[" + std::string(static_cast<size_t>(filled), '=') +
            std::string(static_cast<size_t>(kWidth - filled), ' ') + "] ";
  }
  line += std::to_string(done) + "/" + std::to_string(total_) + " " + one_line(detail);
  std::fprintf(stderr, terminal_ ? "\r\x1b[K%s" : "%s\n", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::finish() {
  if (!finished_ && drawn_ && terminal_) std::fputs("\r\x1b[K", stderr);
  finished_ = true;
}

}  // namespace moestro::cli

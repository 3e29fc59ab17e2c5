#pragma once
// What `moestro top` draws: lines in tones, fitted into a terminal.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moestro::cli {

enum class Tone : uint8_t {
  kPlain,
  kQuiet,
  kStrong,
  kGood,
  kWarn,
  kBad,
  kHeat,  ///< the coldest of kHeats; the hotter ones follow
};
inline constexpr size_t kHeats = 9;
inline Tone heat_tone(size_t heat) { return static_cast<Tone>(static_cast<size_t>(Tone::kHeat) + heat); }
/// A cell's text, which tells its heat where colours do not: one of ".:-=+*#%@".
char heat_mark(size_t heat);

/// Text, and the tone of each of its bytes.
class Line {
 public:
  enum class TooLong : uint8_t { kCut, kWrapped };
  explicit Line(TooLong too_long = TooLong::kCut) : too_long_(too_long) {}
  /// `text` as visible() gives it.
  Line& add(std::string_view text, Tone tone = Tone::kPlain);
  Line& add(const Line& other);

  const std::string& text() const { return text_; }
  bool wraps() const { return too_long_ == TooLong::kWrapped; }
  Line part(size_t begin, size_t end) const;  ///< of its bytes
  /// With the terminal's colours, or the text alone.
  std::string drawn(bool colour) const;

 private:
  std::string text_;
  std::vector<Tone> tones_;
  TooLong too_long_;
};

struct TerminalSize {
  size_t columns = 80, rows = 0;  ///< rows 0: there is no terminal, and no bound
};

/// Columns of the label before figures.
inline constexpr size_t kLabel = 9;
/// "queue    ", figures behind it; what does not fit goes on in the next line, below the figures.
Line figures(std::string_view label, Tone tone = Tone::kQuiet);
/// A table's line: cut where it does not fit.
Line row(std::string_view text, Tone tone = Tone::kPlain);

/// None wider than `columns`.
std::vector<Line> fitted(const std::vector<Line>& lines, size_t columns);
/// Of fitted lines, at most `rows`; the last says how many are missing.
std::vector<Line> cut_to_height(std::vector<Line> lines, size_t rows, size_t columns);

}  // namespace moestro::cli

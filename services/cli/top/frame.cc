#include "services/cli/top/frame.h"

#include <algorithm>
#include <array>

#include "services/cli/top/text_width.h"

namespace moestro::cli {
namespace {

constexpr std::string_view kHeatMarks = ".:-=+*#%@";
static_assert(kHeatMarks.size() == kHeats);
/// Of a terminal's 256 colours, from dark to light: lightness alone tells, so that no hue has to be told from another.
constexpr std::array<int, kHeats> kHeatColours{235, 53, 55, 24, 31, 36, 77, 185, 229};

std::string begin_of(Tone tone) {
  switch (tone) {
    case Tone::kPlain: return "";
    case Tone::kQuiet: return "\x1b[2m";
    case Tone::kStrong: return "\x1b[1m";
    case Tone::kGood: return "\x1b[32m";
    case Tone::kWarn: return "\x1b[33m";
    case Tone::kBad: return "\x1b[1;31m";
    default:
      return "\x1b[48;5;" +
             std::to_string(kHeatColours.at(static_cast<size_t>(tone) - static_cast<size_t>(Tone::kHeat))) + "m";
  }
}

/// Where a text is best broken of which `end` bytes fit: behind a comma or semicolon if that leaves a third of the line
/// at most, else at any space behind `indent`; npos: nowhere.
size_t last_space(std::string_view text, size_t indent, size_t end) {
  size_t any = std::string::npos;
  for (size_t at = end; at > indent; --at) {
    if (text[at] != ' ') continue;
    const bool after_mark = text[at - 1] == ';' || text[at - 1] == ',';
    if (after_mark && at >= end - end / 3) return at;
    if (any == std::string::npos && text.find_first_not_of(' ') < at) any = at;
  }
  return any;
}

void add_wrapped(const Line& line, size_t columns, std::vector<Line>& page) {
  const size_t indent = std::min(kLabel, columns / 4);
  Line rest = line;
  while (true) {
    const std::string& text = rest.text();
    const size_t whole = fitting(text, columns).size();
    if (whole == text.size()) break;
    const size_t space = last_space(text, indent, whole);
    const bool at_space = space != std::string::npos;
    const size_t end = at_space ? space : whole;
    if (end <= indent) break;  // a character that is wider than the terminal
    page.push_back(rest.part(0, end));
    Line next(Line::TooLong::kWrapped);
    next.add(std::string(indent, ' '));
    next.add(rest.part(at_space ? end + 1 : end, text.size()));
    rest = std::move(next);
  }
  page.push_back(rest.part(0, fitting(rest.text(), columns).size()));
}

}  // namespace

char heat_mark(size_t heat) { return kHeatMarks.at(heat); }

Line& Line::add(std::string_view text, Tone tone) {
  text_ += text;
  tones_.insert(tones_.end(), text.size(), tone);
  return *this;
}

Line& Line::add(const Line& other) {
  text_ += other.text_;
  tones_.insert(tones_.end(), other.tones_.begin(), other.tones_.end());
  return *this;
}

Line Line::part(size_t begin, size_t end) const {
  Line some(too_long_);
  some.text_ = text_.substr(begin, end - begin);
  some.tones_.assign(tones_.begin() + static_cast<ptrdiff_t>(begin), tones_.begin() + static_cast<ptrdiff_t>(end));
  return some;
}

std::string Line::drawn(bool colour) const {
  if (!colour) return text_;
  std::string out;
  for (size_t begin = 0, end = 0; begin < text_.size(); begin = end) {
    const Tone tone = tones_[begin];
    while (end < text_.size() && tones_[end] == tone) ++end;
    const std::string run = tone >= Tone::kHeat ? std::string(end - begin, ' ') : text_.substr(begin, end - begin);
    out += tone == Tone::kPlain ? run : begin_of(tone) + run + "\x1b[0m";
  }
  return out;
}

Line figures(std::string_view label, Tone tone) {
  Line line(Line::TooLong::kWrapped);
  line.add(padded(std::string(label), kLabel), tone);
  return line;
}

Line row(std::string_view text, Tone tone) {
  Line line;
  line.add(text, tone);
  return line;
}

std::vector<Line> fitted(const std::vector<Line>& lines, size_t columns) {
  std::vector<Line> page;
  for (const Line& line : lines) {
    if (line.wraps()) add_wrapped(line, columns, page);
    else page.push_back(line.part(0, fitting(line.text(), columns).size()));
  }
  return page;
}

std::vector<Line> cut_to_height(std::vector<Line> lines, size_t rows, size_t columns) {
  if (lines.size() <= rows) return lines;
  const size_t missing = lines.size() - rows + 1;
  lines.resize(rows);
  if (rows > 0) {
    const std::string text = "... " + std::to_string(missing) + " more lines: make the terminal taller";
    lines.back() = row(fitting(text, columns), Tone::kQuiet);
  }
  return lines;
}

}  // namespace moestro::cli

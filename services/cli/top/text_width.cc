#include "services/cli/top/text_width.h"

#include <utf8proc.h>

#include <algorithm>

#include "services/cli/common/output.h"

namespace moestro::cli {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Character {
  utf8proc_int32_t code_point = -1;  ///< negative: bytes that are no UTF-8
  size_t bytes = 1;
};

/// `text` is not empty.
Character first_of(std::string_view text) {
  Character c;
  const auto* at = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto bytes = utf8proc_iterate(at, static_cast<utf8proc_ssize_t>(text.size()), &c.code_point);
  if (bytes > 0) c.bytes = static_cast<size_t>(bytes);
  else c.code_point = -1;
  return c;
}

bool can_be_shown(utf8proc_int32_t code_point) {
  constexpr utf8proc_int32_t kNonJoiner = 0x200C, kJoiner = 0x200D;  // parts of words, and of emoji
  if (code_point < 0) return false;
  if (code_point == kNonJoiner || code_point == kJoiner) return true;
  switch (utf8proc_category(code_point)) {
    case UTF8PROC_CATEGORY_CC:  // of these, ASCII's are escaped before
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

size_t columns_of(utf8proc_int32_t code_point) {
  if (code_point < 0) return 1;
  return static_cast<size_t>(std::clamp(utf8proc_charwidth(code_point), 0, 2));
}

}  // namespace

std::string visible(std::string_view bytes) {
  const std::string line = one_line(bytes);
  std::string out;
  out.reserve(line.size());
  for (std::string_view rest = line; !rest.empty();) {
    const Character c = first_of(rest);
    if (c.code_point == '\t') out += ' ';
    else out += can_be_shown(c.code_point) ? rest.substr(0, c.bytes) : kReplacement;
    rest.remove_prefix(c.bytes);
  }
  return out;
}

std::string_view fitting(std::string_view text, size_t columns) {
  size_t end = 0;
  while (end < text.size()) {
    const Character c = first_of(text.substr(end));
    const size_t wide = columns_of(c.code_point);
    if (wide > columns) break;
    columns -= wide, end += c.bytes;
  }
  return text.substr(0, end);
}

size_t display_width(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Character c = first_of(text);
    columns += columns_of(c.code_point), text.remove_prefix(c.bytes);
  }
  return columns;
}

std::string shortened(std::string_view bytes, size_t columns) {
  const std::string text = visible(bytes);
  const size_t width = display_width(text);
  if (width <= columns) return text;
  if (columns < 4) return std::string(fitting(text, columns));
  const size_t tail = (columns - 2) / 2, head = columns - 2 - tail;
  // What is left out is at least so wide that the tail fits.
  std::string_view end = text;
  end.remove_prefix(fitting(text, width - tail).size());
  while (display_width(end) > tail) end.remove_prefix(first_of(end).bytes);
  return std::string(fitting(text, head)) + ".." + std::string(end);
}

std::string padded(std::string text, size_t columns) {
  const size_t width = display_width(text);
  if (width < columns) text.append(columns - width, ' ');
  return text;
}

}  // namespace moestro::cli

#include "orchestrator/api/text_cursor.h"

#include "common/utf8.h"

namespace moestro::orchestrator {

namespace {

constexpr size_t kSearchBytes = 64;  // how far a token may stand from where it is expected: normalised text in between

bool inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

PlacedToken TextCursor::take(std::string shown, size_t bytes) {
  // Bytes of a character stand where it begins.
  const PlacedToken placed{std::move(shown), code_points_ - (inside_character(text_, at_) && code_points_ > 0)};
  code_points_ += count_code_points(text_.substr(at_, bytes));
  at_ += bytes;
  return placed;
}

PlacedToken TextCursor::next(TokenId id) {
  const std::string bytes = tokenizer_.token_bytes(id);
  std::string shown = lossy_utf8(bytes);
  const std::string_view rest = text_.substr(at_);
  if (rest.starts_with(bytes)) return take(std::move(shown), bytes.size());
  if (rest.starts_with(shown)) return take(std::move(shown), shown.size());  // the text has U+FFFD for it
  if (tokenizer_.is_special(id)) return take(std::move(shown), 0);
  if (shown.starts_with(' ') && !rest.starts_with(' ')) {
    shown.erase(0, 1);
    return take(shown, rest.starts_with(shown) ? shown.size() : 0);
  }
  if (const size_t found = rest.substr(0, kSearchBytes).find(bytes); found != std::string_view::npos) {
    take({}, found);
    return take(std::move(shown), bytes.size());
  }
  // A later byte of a broken character, which the text shows as one U+FFFD.
  if (inside_character(bytes, 0) && code_points_ > 0) return {std::move(shown), code_points_ - 1};
  return take(std::move(shown), 0);
}

}  // namespace moestro::orchestrator

#include "orchestrator/tokenizer/pre_tokenizer.h"

#include "orchestrator/tokenizer/byte_level.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

struct Part {
  Match range;
  bool matched;
};

void find_literal(std::string_view literal, std::string_view text, std::vector<Match>& matches) {
  for (size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal, at + literal.size())) {
    matches.push_back({at, at + literal.size()});
  }
}

void find_class(bool (*in_class)(char32_t), std::string_view text, std::vector<Match>& matches) {
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = code_point_at(text, i);
    if (in_class(c.value)) matches.push_back({i, i + c.bytes});
    i += c.bytes;
  }
}

// The whole text, as matches and what lies between them.
std::vector<Part> alternate(const std::vector<Match>& matches, size_t size, bool invert) {
  std::vector<Part> parts;
  size_t from = 0;
  for (const Match& match : matches) {
    if (match.begin > from) parts.push_back({{from, match.begin}, invert});
    parts.push_back({match, !invert});
    from = match.end;
  }
  if (from < size) parts.push_back({{from, size}, invert});
  return parts;
}

void push(std::vector<Match>& out, Match range) {
  if (range.end > range.begin) out.push_back(range);
}

// Replaces the text of each piece; fn(index, piece, out) appends the new text.
template <typename Fn>
void rewrite(Pieces& pieces, Fn fn) {
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    Match& range = pieces.ranges[i];
    const size_t begin = text.size();
    fn(i, std::string_view(pieces.text).substr(range.begin, range.end - range.begin), text);
    range = {begin, text.size()};
  }
  pieces.text = std::move(text);
}

}  // namespace

Status PreTokenizer::find(const Split& split, std::string_view text, std::vector<Match>& matches) {
  if (!split.regex.empty()) return split.regex.front().find_all(text, matches);
  if (split.find != nullptr)
    split.find(text, matches);
  else if (split.in_class != nullptr)
    find_class(split.in_class, text, matches);
  else
    find_literal(split.literal, text, matches);
  return Status::ok();
}

Status PreTokenizer::run(const Split& split, Pieces& pieces) {
  std::vector<Match> out, matches;
  for (const Match& piece : pieces.ranges) {
    matches.clear();
    MOESTRO_RETURN_IF_ERROR(
        find(split, std::string_view(pieces.text).substr(piece.begin, piece.end - piece.begin), matches));
    const auto parts = alternate(matches, piece.end - piece.begin, split.invert);
    const auto emit = [&](size_t first, size_t last) {  // parts [first, last) as one piece
      push(out, {piece.begin + parts[first].range.begin, piece.begin + parts[last - 1].range.end});
    };
    for (size_t i = 0; i < parts.size();) {
      size_t next = i + 1;
      const bool matched = parts[i].matched;
      switch (split.behavior) {
        case Behavior::kIsolated:
          break;
        case Behavior::kRemoved:
          if (matched) {
            i = next;
            continue;
          }
          break;
        case Behavior::kContiguous:
          while (next < parts.size() && parts[next].matched == matched) ++next;
          break;
        case Behavior::kMergedWithPrevious:  // a stretch takes the one match that follows it
          if (!matched && next < parts.size() && parts[next].matched) ++next;
          break;
        case Behavior::kMergedWithNext:  // a match takes the stretch that follows it
          if (matched && next < parts.size() && !parts[next].matched) ++next;
          break;
      }
      emit(i, next);
      i = next;
    }
  }
  if (out.empty() || out.front().begin != 0) pieces.at_start = false;
  pieces.ranges = std::move(out);
  return Status::ok();
}

Status PreTokenizer::run(const FixedLength& fixed, Pieces& pieces) {
  std::vector<Match> out;
  for (const Match& piece : pieces.ranges) {
    size_t begin = piece.begin, characters = 0;
    for (size_t i = piece.begin; i < piece.end; i += code_point_at(pieces.text, i).bytes) {
      if (characters > 0 && characters % fixed.characters == 0) {
        push(out, {begin, i});
        begin = i;
      }
      ++characters;
    }
    push(out, {begin, piece.end});
  }
  pieces.ranges = std::move(out);
  return Status::ok();
}

// Cuts where the script changes. What goes with any script goes with what is before it; at the start, where there is
// nothing before it, it is dropped, as in the reference.
Status PreTokenizer::run(const UnicodeScripts&, Pieces& pieces) {
  std::vector<Match> out;
  for (const Match& piece : pieces.ranges) {
    size_t begin = piece.end;
    uint8_t last = 0;
    for (size_t i = piece.begin; i < piece.end;) {
      const CodePoint c = code_point_at(pieces.text, i);
      const uint8_t script = script_group(c.value);
      if (script != 0 && script != last) {
        if (last != 0) push(out, {begin, i});
        begin = i;
        last = script;
      }
      i += c.bytes;
    }
    push(out, {begin, piece.end});
  }
  if (out.empty() || out.front().begin != 0) pieces.at_start = false;
  pieces.ranges = std::move(out);
  return Status::ok();
}

Status PreTokenizer::run(const Metaspace& metaspace, Pieces& pieces) {
  rewrite(pieces, [&](size_t index, std::string_view piece, std::string& text) {
    const bool wanted =
        metaspace.scheme == Scheme::kAlways || (metaspace.scheme == Scheme::kFirst && index == 0 && pieces.at_start);
    if (wanted && !piece.starts_with(' ') && !piece.starts_with(metaspace.replacement)) text += metaspace.replacement;
    for (const char c : piece) {
      if (c == ' ')
        text += metaspace.replacement;
      else
        text += c;
    }
  });
  if (!metaspace.split) return Status::ok();
  Split split;
  split.literal = metaspace.replacement;
  split.behavior = Behavior::kMergedWithNext;
  return run(split, pieces);
}

Status PreTokenizer::run(const ByteLevel& byte_level, Pieces& pieces) const {
  if (byte_level.add_prefix_space) {
    rewrite(pieces, [](size_t, std::string_view piece, std::string& text) {
      if (!piece.starts_with(' ')) text += ' ';
      text += piece;
    });
  }
  if (byte_level.use_regex) MOESTRO_RETURN_IF_ERROR(run(words_, pieces));
  rewrite(pieces, [](size_t, std::string_view piece, std::string& text) { append_byte_level(text, piece); });
  return Status::ok();
}

Status PreTokenizer::apply(Pieces& pieces) const {
  for (const Step& step : steps_) {
    MOESTRO_RETURN_IF_ERROR(std::visit([&](const auto& kind) { return run(kind, pieces); }, step));
  }
  return Status::ok();
}

}  // namespace moestro::tok

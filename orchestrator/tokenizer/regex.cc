#include "orchestrator/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <map>

#include "orchestrator/tokenizer/code_point_set.h"
#include "orchestrator/tokenizer/regex_reader.h"
#include "orchestrator/tokenizer/regex_syntax.h"
#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr size_t kPatternBytesMax = 32 * 1024;
constexpr uint32_t kHeapKibMax = 64 * 1024;
constexpr size_t kSymbolsMax = 256;

// PCRE2 never sees the text, but one byte for each character of it: its symbol. Characters that no set of the regex
// tells apart share one. So a class of any size costs one look-up, and which Unicode PCRE2 knows does not matter.
class SymbolMap {
 public:
  /// Errors: kUnsupported where the sets tell more than 256 kinds of characters apart.
  Status assign(const std::vector<CodePointSet>& sets) {
    // Where a set begins or ends the kind of character changes.
    std::vector<std::pair<char32_t, size_t>> changes;
    for (size_t i = 0; i < sets.size(); ++i) {
      for (const auto& range : sets[i].ranges()) {
        changes.emplace_back(range.first, i);
        if (range.last < kCodePointMax) changes.emplace_back(range.last + 1, i);
      }
    }
    std::sort(changes.begin(), changes.end());
    std::map<std::vector<bool>, uint8_t> symbol_of;
    std::vector<bool> member(sets.size());
    std::vector<uint8_t> symbols(kCodePointMax + 1);
    members_.resize(sets.size());
    char32_t begin = 0;
    for (size_t i = 0; begin <= kCodePointMax;) {
      for (; i < changes.size() && changes[i].first == begin; ++i) member[changes[i].second].flip();
      const char32_t end = i < changes.size() ? changes[i].first : kCodePointMax + 1;
      const auto [it, fresh] = symbol_of.emplace(member, static_cast<uint8_t>(symbol_of.size()));
      if (symbol_of.size() > kSymbolsMax) return unsupported("tells more than 256 kinds of characters apart");
      for (size_t s = 0; fresh && s < sets.size(); ++s) members_[s][it->second] = member[s];
      std::fill(symbols.begin() + begin, symbols.begin() + end, it->second);
      begin = end;
    }
    pack(symbols);
    return Status::ok();
  }

  /// The set as a class of symbols, in PCRE2's syntax.
  std::string spell(size_t set) const {
    const std::bitset<kSymbolsMax>& in = members_[set];
    if (in.none()) return "[^\\x00-\\xFF]";
    std::string text = "[";
    for (size_t first = 0; first < kSymbolsMax; ++first) {
      if (!in[first]) continue;
      size_t last = first;
      while (last + 1 < kSymbolsMax && in[last + 1]) ++last;
      char range[16];
      std::snprintf(range, sizeof range, first == last ? "\\x%02zX" : "\\x%02zX-\\x%02zX", first, last);
      text += range;
      first = last;
    }
    return text + "]";
  }

  std::string of_text(std::string_view text) const {
    std::string symbols(text.size(), '\0');
    size_t n = 0;
    for (size_t i = 0; i < text.size();) {
      const CodePoint c = code_point_at(text, i);
      symbols[n++] = static_cast<char>(pages_[page_of_[c.value / kPageSize]][c.value % kPageSize]);
      i += c.bytes;
    }
    symbols.resize(n);
    return symbols;
  }

 private:
  static constexpr size_t kPageSize = 256;
  using Page = std::array<uint8_t, kPageSize>;

  void pack(const std::vector<uint8_t>& symbols) {
    std::map<Page, uint16_t> seen;
    for (size_t page = 0; page < page_of_.size(); ++page) {
      Page content;
      std::copy_n(symbols.begin() + static_cast<ptrdiff_t>(page * kPageSize), kPageSize, content.begin());
      const auto [it, fresh] = seen.emplace(content, static_cast<uint16_t>(pages_.size()));
      if (fresh) pages_.push_back(content);
      page_of_[page] = it->second;
    }
  }

  std::vector<std::bitset<kSymbolsMax>> members_;  // by set
  std::array<uint16_t, (kCodePointMax + 1) / kPageSize> page_of_{};
  std::vector<Page> pages_;
};

struct MatchState {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

}  // namespace

struct Regex::Code {
  SymbolMap symbols;
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return invalid_argument(shown_regex(pattern) + " is longer than " + std::to_string(kPatternBytesMax) + " bytes");
  }
  MOESTRO_ASSIGN_OR_RETURN(const RegexParts parts, parse_regex(pattern));
  auto code = std::make_shared<Code>();
  MOESTRO_RETURN_IF_ERROR(code->symbols.assign(parts.sets).with_context(shown_regex(pattern)));
  std::string translated;
  for (const auto& part : parts.parts)
    translated += part.set < 0 ? part.syntax : code->symbols.spell(static_cast<size_t>(part.set));
  int error = 0;
  PCRE2_SIZE offset = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code->code == nullptr) {
    char message[160] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    return invalid_argument(shown_regex(pattern) + " does not compile: " + message);
  }
  pcre2_jit_compile(code->code,
                    PCRE2_JIT_COMPLETE);  // where it cannot, the interpreter gives the same matches
  Regex regex;
  regex.code_ = std::move(code);
  regex.pattern_ = pattern;
  return regex;
}

Status Regex::find_all(std::string_view text, std::vector<Match>& out) const {
  if (text.empty()) return Status::ok();  // the callers split or replace; an empty text has nothing to split
  MatchState state;
  state.data = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  state.context = pcre2_match_context_create(nullptr);
  if (state.data == nullptr || state.context == nullptr) return exhausted("out of memory while matching a regex");
  // Grows with the text, because "spaces up to the end" rightly steps back over every one of them once.
  const uint64_t steps_max = 100'000 + 64 * static_cast<uint64_t>(text.size());
  pcre2_set_match_limit(state.context, static_cast<uint32_t>(std::min<uint64_t>(steps_max, UINT32_MAX)));
  pcre2_set_heap_limit(state.context, kHeapKibMax);

  const std::string symbols = code_->symbols.of_text(text);
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(symbols.data());
  // Places are characters while matching and bytes outside; they only grow, so one walk over the text finds them.
  size_t characters = 0, bytes = 0;
  const auto byte_at = [&](size_t character) {
    if (symbols.size() == text.size()) return character;
    for (; characters < character; ++characters) bytes += code_point_at(text, bytes).bytes;
    return bytes;
  };
  size_t last_end = std::string::npos;
  for (size_t pos = 0; pos <= symbols.size();) {
    const auto match = [&](uint32_t options) {
      return pcre2_match(code_->code, subject, symbols.size(), pos, options, state.data, state.context);
    };
    int rc = match(0);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return exhausted(shown_regex(pattern_) + " needs too many steps on this text");
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(state.data);
    if (span[1] < span[0] || span[0] < pos) {  // \K inside a lookaround can do this
      return unsupported(shown_regex(pattern_) + " matches backwards, which is not supported");
    }
    if (span[0] == span[1] && span[0] == last_end) {  // an empty match counts where no other has just ended
      ++pos;
      continue;
    }
    const size_t begin = byte_at(span[0]);
    out.push_back({begin, byte_at(span[1])});
    pos = last_end = span[1];
  }
  return Status::ok();
}

}  // namespace moestro::tok

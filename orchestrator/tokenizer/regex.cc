#include "orchestrator/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "orchestrator/tokenizer/unicode.h"

namespace moestro::tok {
namespace {

constexpr size_t kPatternBytesMax = 32 * 1024;
constexpr uint32_t kHeapKibMax = 64 * 1024;

// Oniguruma's \s is White_Space (PCRE2's also has U+180E) and its \w has marks and connectors (PCRE2 10.42's
// has not).
constexpr std::string_view kSpaceItems =
    "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}";
constexpr std::string_view kWordItems = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";

std::string shown(std::string_view pattern) {
  std::string text(pattern.substr(0, 60));
  if (pattern.size() > 60) text += "...";
  return "the regex '" + lossy_utf8(text) + "'";
}

// Rewrites what the two dialects read differently; what has no equivalent is refused rather than read
// wrongly.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> run() {
    while (pos_ < in_.size()) {
      const char c = in_[pos_];
      if (c == '\\') {
        escape();
      } else if (in_class_) {
        MOESTRO_RETURN_IF_ERROR(class_character(c));
      } else {
        if (c == '[')
          open_class();
        else
          copy(1);
      }
    }
    return std::move(out_);
  }

 private:
  void copy(size_t n) {
    out_ += in_.substr(pos_, n);
    pos_ += n;
  }

  void open_class() {
    in_class_ = true;
    copy(1);
    if (pos_ < in_.size() && in_[pos_] == '^') copy(1);
    if (pos_ < in_.size() && in_[pos_] == ']') copy(1);
  }

  Status class_character(char c) {
    const std::string_view two = in_.substr(pos_, 2);
    if (two == "[:") {
      const size_t end = in_.find(":]", pos_ + 2);
      if (end != std::string_view::npos) return copy(end + 2 - pos_), Status::ok();
    }
    if (c == '[') return unsupported(shown(in_) + " has a class inside a class, which is not supported");
    if (two == "&&")
      return unsupported(shown(in_) + " has an intersection of classes (&&), which is not supported");
    if (c == ']') in_class_ = false;
    copy(1);
    return Status::ok();
  }

  void replace(std::string_view text) {
    out_ += text;
    pos_ += 2;
  }

  void replace_class(std::string_view items, bool negated) {
    if (in_class_) return replace(items);
    out_ += negated ? "[^" : "[";
    out_ += items;
    out_ += ']';
    pos_ += 2;
  }

  void escape() {
    const char kind = pos_ + 1 < in_.size() ? in_[pos_ + 1] : '\0';
    if (kind == 's') return replace_class(kSpaceItems, false);
    if (kind == 'w') return replace_class(kWordItems, false);
    if (kind == 'h') return replace_class("0-9A-Fa-f", false);
    if (kind == 'S' && !in_class_) return replace_class(kSpaceItems, true);
    if (kind == 'W' && !in_class_) return replace_class(kWordItems, true);
    if (kind == 'H' && !in_class_) return replace_class("0-9A-Fa-f", true);
    if (kind == 'u' && pos_ + 6 <= in_.size()) {
      out_ += "\\x{" + std::string(in_.substr(pos_ + 2, 4)) + "}";
      pos_ += 6;
      return;
    }
    copy(std::min<size_t>(2, in_.size() - pos_));
  }

  std::string_view in_;
  std::string out_;
  size_t pos_ = 0;
  bool in_class_ = false;
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
  pcre2_code* code = nullptr;
  ~Code() { pcre2_code_free(code); }
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return invalid_argument(shown(pattern) + " is longer than " + std::to_string(kPatternBytesMax) +
                            " bytes");
  }
  MOESTRO_ASSIGN_OR_RETURN(const std::string translated, Translator(pattern).run());
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) return exhausted("out of memory while compiling " + shown(pattern));
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                             &offset, context.get());
  if (code->code == nullptr) {
    char message[160] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(message), sizeof message);
    return invalid_argument(shown(pattern) + " does not compile: " + message);
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
  if (state.data == nullptr || state.context == nullptr)
    return exhausted("out of memory while matching a regex");
  // Grows with the text, because "spaces up to the end" rightly steps back over every one of them once.
  const uint64_t steps_max = 100'000 + 64 * static_cast<uint64_t>(text.size());
  pcre2_set_match_limit(state.context, static_cast<uint32_t>(std::min<uint64_t>(steps_max, UINT32_MAX)));
  pcre2_set_heap_limit(state.context, kHeapKibMax);

  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  for (size_t pos = 0; pos <= text.size();) {
    int rc =
        pcre2_match(code_->code, subject, text.size(), pos, PCRE2_NO_UTF_CHECK, state.data, state.context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_->code, subject, text.size(), pos, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data,
                       state.context);
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) return exhausted(shown(pattern_) + " needs too many steps on this text");
    const PCRE2_SIZE* span = pcre2_get_ovector_pointer(state.data);
    if (span[1] < span[0] || span[0] < pos) {  // \K inside a lookaround can do this
      return unsupported(shown(pattern_) + " matches backwards, which is not supported");
    }
    const bool empty = span[0] == span[1];
    const bool at_last_end = empty && !out.empty() && out.back().end == span[0];
    if (!at_last_end) out.push_back({span[0], span[1]});
    pos = span[1];
    if (empty) pos += pos < text.size() ? code_point_at(text, pos).bytes : 1;
  }
  return Status::ok();
}

}  // namespace moestro::tok

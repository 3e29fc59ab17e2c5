#include "orchestrator/tokenizer/regex_syntax.h"

#include <algorithm>

#include "orchestrator/tokenizer/regex_reader.h"
#include "orchestrator/tokenizer/unicode_properties.h"

namespace moestro::tok {
namespace {

constexpr int kGroupNestingMax = 200;
constexpr unsigned kRepeatMax = 65535;  // PCRE2's

struct Options {
  bool ignore_case = false;
  bool dot_all = false;
  bool extended = false;
  bool in_look = false;  ///< inside of a lookahead or a lookbehind
};

class Parser {
 public:
  explicit Parser(std::string_view pattern) : in_(pattern) {}

  Result<RegexParts> run() {
    MOESTRO_RETURN_IF_ERROR(alternatives(Options(), 0));
    if (!in_.done()) return in_.wrong("a ')' without its '('");
    return std::move(out_);
  }

 private:
  void syntax(std::string text) { out_.parts.push_back({std::move(text)}); }

  void set(const CodePointSet& set) {
    const auto at = std::find(out_.sets.begin(), out_.sets.end(), set);
    const auto index = static_cast<int>(at - out_.sets.begin());
    if (at == out_.sets.end()) out_.sets.push_back(set);
    out_.parts.push_back({"", index});
  }

  /// Up to the end of the group, whose ')' is left.
  Status alternatives(Options options, int depth) {
    if (depth > kGroupNestingMax) return in_.wrong("its groups nest too deeply");
    while (!in_.done() && !in_.at(")")) MOESTRO_RETURN_IF_ERROR(piece(options, depth));
    flush(options);
    return Status::ok();
  }

  /// One atom with what repeats it.
  Status piece(Options& options, int depth) {
    if (options.extended && take_blank()) return Status::ok();
    if (in_.at("(?#")) {
      if (!in_.take_until(")")) return in_.wrong("a comment without its ')'");
      return Status::ok();
    }
    if (in_.take("|")) {
      flush(options);
      syntax("|");
      return Status::ok();
    }
    MOESTRO_ASSIGN_OR_RETURN(const auto early, take_repeat());
    if (!early.empty()) return in_.wrong("nothing to repeat");
    MOESTRO_ASSIGN_OR_RETURN(const std::optional<char32_t> literal, take_literal());
    size_t begin;
    bool repeatable = true;
    if (literal) {
      if (options.ignore_case && !repeat_is_next(options)) return run_.push_back(*literal), Status::ok();
      flush(options);
      begin = out_.parts.size();
      run_ = {*literal};
      flush(options);
    } else {
      flush(options);
      begin = out_.parts.size();
      MOESTRO_RETURN_IF_ERROR(atom(options, depth, repeatable));
    }
    for (int repetitions = 0;;) {
      if (options.extended && take_blank()) continue;
      MOESTRO_ASSIGN_OR_RETURN(const auto repeats, take_repeat());
      if (repeats.empty()) return Status::ok();
      if (!repeatable) return in_.wrong("a repetition of what has no length");
      for (const std::string& repeat : repeats) {
        if (repetitions > kGroupNestingMax) return in_.wrong("its repetitions nest too deeply");
        if (repetitions > 0) {  // the atom is one set or one group, so that the first one needs no group
          out_.parts.insert(out_.parts.begin() + static_cast<ptrdiff_t>(begin), {"(?:"});
          syntax(")");
        }
        syntax(repeat);
        ++repetitions;
      }
    }
  }

  bool take_blank() {
    if (in_.take("#")) {
      if (!in_.take_until("\n")) {
        while (!in_.done()) in_.take_char();
      }
      return true;
    }
    return in_.take(" ") || in_.take("\t") || in_.take("\n") || in_.take("\r") || in_.take("\f") || in_.take("\v");
  }

  /// A character that stands for itself, spelled out or not.
  Result<std::optional<char32_t>> take_literal() {
    using Literal = std::optional<char32_t>;
    const char c = in_.peek();
    if (std::string_view("(|)[.^$").find(c) != std::string_view::npos) return Literal();
    if (c != '\\') return Literal(in_.take_char());
    const size_t begin = in_.position();
    in_.take("\\");
    const char kind = in_.peek();
    // What else a backslash begins, properties as they are told from a bare "p" apart.
    const bool property = (kind == 'p' || kind == 'P') && (in_.at("p{") || in_.at("P{"));
    if (property || std::string_view("dDsSwWhHbBAzZGKRNOXyYkg123456789").find(kind) != std::string_view::npos) {
      in_.go_to(begin);
      return Literal();
    }
    MOESTRO_ASSIGN_OR_RETURN(const char32_t escaped, in_.take_char_escape());
    return Literal(escaped);
  }

  bool repeat_is_next(const Options& options) {
    const size_t begin = in_.position();
    while (options.extended && take_blank()) continue;
    const auto repeats = take_repeat();
    in_.go_to(begin);
    return !repeats.is_ok() || !repeats->empty();
  }

  /// A quantifier in PCRE2's spelling, as one or two in a row; none: none is next.
  Result<std::vector<std::string>> take_repeat() {
    using Repeats = std::vector<std::string>;
    for (const std::string symbol : {"*", "+", "?"}) {
      if (!in_.take(symbol)) continue;
      if (in_.take("?")) return Repeats{symbol + "?"};
      if (in_.take("+")) return Repeats{symbol + "+"};
      return Repeats{symbol};
    }
    const size_t begin = in_.position();
    if (!in_.take("{")) return Repeats();
    const auto low = in_.take_number();
    const bool comma = in_.take(",");
    const auto high = comma ? in_.take_number() : low;
    if ((!low && !high) || !in_.take("}")) {  // then it is a character
      in_.go_to(begin);
      return Repeats();
    }
    const unsigned from = low.value_or(0);
    if (std::max(from, high.value_or(0)) > kRepeatMax) return in_.unknown("a repetition of more than 65,535 times");
    const std::string first = "{" + std::to_string(from);
    if (!comma) {  // "{n}?" is not lazy but optional
      return in_.take("?") ? Repeats{first + "}", "?"} : Repeats{first + "}"};
    }
    // With the bounds turned round it gives nothing back. "{n,m}+" is no such thing: it repeats the whole.
    if (high && *high < from) return Repeats{"{" + std::to_string(*high) + "," + std::to_string(from) + "}+"};
    const std::string bounds = first + "," + (high ? std::to_string(*high) : "") + "}";
    return Repeats{in_.take("?") ? bounds + "?" : bounds};
  }

  Status atom(Options& options, int depth, bool& repeatable) {
    if (in_.take("(")) return group(options, depth, repeatable);
    if (in_.take("[")) return bracket(options);
    if (in_.take(".")) return any(options.dot_all);
    if (in_.take("^")) {
      repeatable = false;
      return line_begin(), Status::ok();
    }
    if (in_.take("$")) {
      repeatable = false;
      return line_end("\\z"), Status::ok();
    }
    in_.take("\\");
    MOESTRO_ASSIGN_OR_RETURN(const auto escaped, in_.take_set_escape(false));
    if (escaped) return set(*escaped), Status::ok();
    return escape(options, repeatable);
  }

  Status any(bool with_newline) {
    set(with_newline ? CodePointSet::all() : CodePointSet(U'\n', U'\n').complement());
    return Status::ok();
  }

  void line_begin() {
    syntax("(?:\\A|(?<=");
    set({U'\n', U'\n'});
    syntax(")(?!\\z))");
  }

  void line_end(const char* otherwise) {
    syntax("(?:");
    syntax(otherwise);
    syntax("|(?=");
    set({U'\n', U'\n'});
    syntax("))");
  }

  Status escape(const Options& options, bool& repeatable) {
    const char kind = static_cast<char>(in_.take_char());
    repeatable = std::string_view("RNO").find(kind) != std::string_view::npos;
    switch (kind) {
      case 'b':
      case 'B':
        return word_boundary(kind == 'b'), Status::ok();
      case 'A':
      case 'z':
      case 'G':
        return syntax(std::string("\\") + kind), Status::ok();
      case 'K':
        if (options.in_look) return in_.unknown("\\K inside of a lookahead or a lookbehind");
        return syntax(std::string("\\") + kind), Status::ok();
      case 'Z':
        syntax("(?:\\z|(?=");
        set({U'\n', U'\n'});
        syntax("\\z))");
        return Status::ok();
      case 'N':
        return any(false);
      case 'O':
        return any(true);
      case 'R':
        return general_newline(), Status::ok();
      case 'k':
      case 'g':
        return in_.unknown(std::string("a reference (\\") + kind + ")");
      case 'X':
      case 'y':
      case 'Y':
        return in_.unknown(std::string("text segments (\\") + kind + ")");
      default:
        return in_.unknown(std::string("a backreference (\\") + kind + ")");
    }
  }

  void word_boundary(bool wanted) {
    const auto side = [&](const char* look) {
      syntax(look);
      set(bare_word());
      syntax(")");
    };
    syntax("(?:");
    side("(?<=");
    side(wanted ? "(?!" : "(?=");
    syntax("|");
    side("(?<!");
    side(wanted ? "(?=" : "(?!");
    syntax(")");
  }

  void general_newline() {
    syntax("(?>");
    set({U'\r', U'\r'});
    set({U'\n', U'\n'});
    syntax("|");
    CodePointSet single(U'\n', U'\r');
    for (const char32_t c : {0x85, 0x2028, 0x2029}) single.add(c);
    set(single);
    syntax(")");
  }

  Status group(Options& options, int depth, bool& repeatable) {
    static constexpr std::string_view kLooks[] = {"?=", "?!", "?<=", "?<!"};
    for (const auto look : kLooks) {
      if (!in_.take(look)) continue;
      repeatable = false;
      Options inside = options;
      inside.in_look = true;
      return inner("(" + std::string(look), inside, depth);
    }
    if (in_.at("*")) return in_.unknown("a callout");
    if (in_.take("?>")) return inner("(?>", options, depth);
    if (in_.take("?:")) return inner("(?:", options, depth);
    // References to groups are refused, so none of them needs a number or a name.
    for (const auto& [begin, end] : {std::pair("?<", ">"), std::pair("?'", "'")}) {
      if (!in_.take(begin)) continue;
      if (!in_.take_until(end)) return in_.wrong("a name without its end");
      return inner("(?:", options, depth);
    }
    if (in_.take("?")) return option_group(options, depth, repeatable);
    return inner("(?:", options, depth);
  }

  Status inner(std::string opening, Options options, int depth) {
    syntax(std::move(opening));
    MOESTRO_RETURN_IF_ERROR(alternatives(options, depth + 1));
    if (!in_.take(")")) return in_.wrong("a '(' without its ')'");
    syntax(")");
    return Status::ok();
  }

  /// (?i-mx) and (?i-mx:...). The first holds for the rest of its group, of which it makes one alternative.
  Status option_group(Options options, int depth, bool& repeatable) {
    bool on = true;
    while (!in_.at(":") && !in_.at(")")) {
      if (in_.done()) return in_.wrong("a '(?' without its end");
      const char c = static_cast<char>(in_.take_char());
      if (c == '-')
        on = false;
      else if (c == 'i')
        options.ignore_case = on;
      else if (c == 'm')
        options.dot_all = on;
      else if (c == 'x')
        options.extended = on;
      else
        return in_.unknown(std::string("the group (?") + c);
    }
    if (in_.take(":")) return inner("(?:", options, depth);
    in_.take(")");
    repeatable = false;
    syntax("(?:");
    MOESTRO_RETURN_IF_ERROR(alternatives(options, depth + 1));
    syntax(")");
    return Status::ok();
  }

  Status bracket(const Options& options) {
    MOESTRO_ASSIGN_OR_RETURN(RegexClass found, parse_class(in_, 0));
    if (!options.ignore_case) return set(found.negated ? found.set.complement() : found.set), Status::ok();
    const CodePointSet raw = found.set;
    close_over_case(found.set);
    if (found.negated) return set(found.set.complement()), Status::ok();
    syntax("(?:");
    set(found.set);
    for (const LongFold& fold : long_folds()) {
      if (!raw.contains(fold.from)) continue;
      syntax("|");
      for (const char32_t c : fold.to) set(case_variants(c));
    }
    syntax(")");
    return Status::ok();
  }

  /// Puts out the characters that wait in run_: two or three of them may equal one, and one of them two or three.
  void flush(const Options& options) {
    for (size_t i = 0; i < run_.size();) i += options.ignore_case ? fold_at(i) : (set({run_[i], run_[i]}), 1);
    run_.clear();
  }

  size_t fold_at(size_t at) {
    for (const size_t length : {3, 2}) {
      if (at + length > run_.size()) continue;
      CodePointSet same;
      for (const LongFold& fold : long_folds()) {
        if (equals_fold(std::span(run_).subspan(at, length), fold)) same.add(fold.from);
      }
      if (same.empty()) continue;
      syntax("(?:");
      for (size_t i = at; i < at + length; ++i) set(case_variants(run_[i]));
      syntax("|");
      set(same);
      syntax(")");
      return length;
    }
    const auto folds = long_folds();
    const auto own =
        std::find_if(folds.begin(), folds.end(), [&](const LongFold& fold) { return fold.from == run_[at]; });
    if (own == folds.end()) return set(case_variants(run_[at])), 1;
    syntax("(?:");
    set(case_variants(run_[at]));
    syntax("|");
    for (const char32_t c : own->to) set(case_variants(c));
    syntax(")");
    return 1;
  }

  RegexReader in_;
  RegexParts out_;
  std::vector<char32_t> run_;  // literal characters that may be taken together where case is ignored
};

}  // namespace

Result<RegexParts> parse_regex(std::string_view pattern) {
  return Parser(pattern).run();
}

}  // namespace moestro::tok

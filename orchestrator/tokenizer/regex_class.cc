// Classes in brackets: [a-z\p{L}[:alpha:][^b]&&c].
#include "orchestrator/tokenizer/regex_reader.h"
#include "orchestrator/tokenizer/unicode_properties.h"

namespace moestro::tok {
namespace {

constexpr int kClassNestingMax = 50;

/// [:name:] or [:^name:], if that is next and Oniguruma knows the name's form.
Result<std::optional<CodePointSet>> take_posix(RegexReader& in) {
  const size_t begin = in.position();
  if (!in.take("[:")) return std::optional<CodePointSet>();
  const bool negated = in.take("^");
  const auto name = in.take_until(":]");
  if (!name ||
      name->find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") != name->npos) {
    in.go_to(begin);
    return std::optional<CodePointSet>();
  }
  auto set = posix_bracket(*name);
  if (!set) return in.wrong("no POSIX bracket is called '" + std::string(name->substr(0, 60)) + "'");
  return negated ? set->complement() : set;
}

class ClassParser {
 public:
  ClassParser(RegexReader& in, int depth) : in_(in), depth_(depth) {}

  Result<RegexClass> run() {
    if (depth_ > kClassNestingMax) return in_.wrong("its classes nest too deeply");
    const bool negated = in_.take("^");
    if (in_.at("]")) {  // the first one is a character where another one follows
      in_.take("]");
      if (const size_t here = in_.position(); in_.take_until("]"))
        in_.go_to(here);
      else
        return in_.wrong("an empty class");
      MOESTRO_RETURN_IF_ERROR(value(U']'));
    }
    while (!in_.take("]")) {
      if (in_.done()) return in_.wrong("a class without its ']'");
      MOESTRO_RETURN_IF_ERROR(element());
    }
    flush();
    if (left_) set_ = left_->intersection(set_);
    return RegexClass{std::move(set_), negated};
  }

 private:
  enum class State { kStart, kValue, kRange, kAfterRange, kAfterSet };

  Status element() {
    if (in_.take("&&")) return intersect();
    if (in_.at("[")) {
      MOESTRO_ASSIGN_OR_RETURN(auto posix, take_posix(in_));
      if (posix) return set(*posix);
      in_.take("[");
      MOESTRO_ASSIGN_OR_RETURN(RegexClass nested, parse_class(in_, depth_ + 1));
      return set(nested.negated ? nested.set.complement() : nested.set);
    }
    if (in_.take("-")) return hyphen();
    if (!in_.take("\\")) return value(in_.take_char());
    MOESTRO_ASSIGN_OR_RETURN(auto escaped, in_.take_set_escape(true));
    if (escaped) return set(*escaped);
    if (in_.take("b")) return value(U'\b');
    MOESTRO_ASSIGN_OR_RETURN(const char32_t c, in_.take_char_escape());
    return value(c);
  }

  /// A range's middle after a character; elsewhere, and before the end, a character itself.
  Status hyphen() {
    if (state_ == State::kRange || state_ == State::kStart) return value(U'-');
    const bool last = in_.at("]") || in_.at("&&");
    if (state_ == State::kValue && !last) {
      state_ = State::kRange;
      return Status::ok();
    }
    if (state_ == State::kAfterSet && !last) return in_.wrong("a range that begins with a class");
    flush();
    set_.add(U'-');
    state_ = State::kStart;
    return Status::ok();
  }

  Status value(char32_t c) {
    if (state_ == State::kRange) {
      if (c < pending_) return in_.wrong("a range whose end is before its begin");
      set_.add(CodePointSet(pending_, c));
      state_ = State::kAfterRange;
      return Status::ok();
    }
    flush();
    pending_ = c;
    state_ = State::kValue;
    return Status::ok();
  }

  Status set(const CodePointSet& more) {
    if (state_ == State::kRange) return in_.wrong("a range that ends with a class");
    flush();
    set_.add(more);
    state_ = State::kAfterSet;
    return Status::ok();
  }

  Status intersect() {
    flush();
    left_ = left_ ? left_->intersection(set_) : std::move(set_);
    set_ = CodePointSet();
    state_ = State::kStart;
    return Status::ok();
  }

  void flush() {
    if (state_ == State::kValue) set_.add(pending_);
  }

  RegexReader& in_;
  int depth_;
  State state_ = State::kStart;
  char32_t pending_ = 0;
  CodePointSet set_;                  // since the last &&
  std::optional<CodePointSet> left_;  // what is left of the last &&
};

}  // namespace

Result<RegexClass> parse_class(RegexReader& in, int depth) {
  return ClassParser(in, depth).run();
}

}  // namespace moestro::tok

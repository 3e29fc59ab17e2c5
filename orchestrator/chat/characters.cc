#include "orchestrator/chat/characters.h"

#include <algorithm>
#include <array>
#include <vector>

#include "orchestrator/chat/character_data.h"
#include "orchestrator/chat/text.h"

namespace moestro::jinja {
namespace {

/// All that the tables say of one character.
struct Facts {
  int32_t to_upper = 0, to_lower = 0, to_title = 0;  ///< steps
  bool upper = false, lower = false, title = false, case_ignorable = false, digit = false;
  bool longer = false;  ///< becomes several characters in some case
};

/// The tables, spread for a look-up per character. Pages of which the tables say nothing are one.
class Pages {
 public:
  Pages() {
    spread(kToUpper, &Facts::to_upper);
    spread(kToLower, &Facts::to_lower);
    spread(kToTitle, &Facts::to_title);
    spread(kUpperCase, &Facts::upper);
    spread(kLowerCase, &Facts::lower);
    spread(kTitleCase, &Facts::title);
    spread(kCaseIgnorable, &Facts::case_ignorable);
    spread(kDigits, &Facts::digit);
  }

  const Facts& of(char32_t c) const { return pages_[page_of_[c / kPageSize]][c % kPageSize]; }

 private:
  static constexpr size_t kPageSize = 64, kCharacters = 0x110000;

  template <typename T>
  void set(const CharacterRun& run, T Facts::*fact, T value) {
    for (char32_t c = run.first; c <= run.last; c += run.stride) {
      uint16_t& page = page_of_[c / kPageSize];
      if (page == 0) {
        page = static_cast<uint16_t>(pages_.size());
        pages_.emplace_back();
      }
      pages_[page][c % kPageSize].*fact = value;
    }
  }
  void spread(std::span<const CharacterRun> runs, bool Facts::*fact) {
    for (const CharacterRun& run : runs) set(run, fact, true);
  }
  void spread(const CaseMapping& mapping, int32_t Facts::*step) {
    for (const CaseRun& each : mapping.runs) set(each.run, step, each.step);
    for (const LongCase& each : mapping.longer) set({each.from, each.from, 1}, &Facts::longer, true);
  }

  std::array<uint16_t, kCharacters / kPageSize> page_of_{};
  std::vector<std::array<Facts, kPageSize>> pages_{1};
};

const Facts& facts(char32_t c) {
  static const Pages kPages;
  return kPages.of(c);
}

void append_case(std::string& out, const CaseMapping& mapping, int32_t Facts::*step, char32_t c) {
  const Facts& known = facts(c);
  if (known.longer) {
    const auto found = std::ranges::lower_bound(mapping.longer, c, {}, &LongCase::from);
    if (found != mapping.longer.end() && found->from == c) {
      for (const char32_t part : found->to) {
        if (part != 0) append_utf8(out, part);
      }
      return;
    }
  }
  append_utf8(out, static_cast<char32_t>(static_cast<int32_t>(c) + known.*step));
}

}  // namespace

bool is_upper(char32_t c) {
  return facts(c).upper;
}

bool is_lower(char32_t c) {
  return facts(c).lower;
}

bool is_title(char32_t c) {
  return facts(c).title;
}

bool is_cased(char32_t c) {
  const Facts& known = facts(c);
  return known.upper || known.lower || known.title;
}

bool is_case_ignorable(char32_t c) {
  return facts(c).case_ignorable;
}

bool is_digit(char32_t c) {
  return facts(c).digit;
}

void append_upper(std::string& out, char32_t c) {
  append_case(out, kToUpper, &Facts::to_upper, c);
}

void append_lower(std::string& out, char32_t c) {
  append_case(out, kToLower, &Facts::to_lower, c);
}

void append_title(std::string& out, char32_t c) {
  append_case(out, kToTitle, &Facts::to_title, c);
}

}  // namespace moestro::jinja

#include "orchestrator/tokenizer/unicode_properties.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "orchestrator/tokenizer/unicode_data.h"

namespace moestro::tok {
namespace {

uint32_t digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0');
  if (c >= 'A' && c <= 'Z') return static_cast<uint32_t>(c - 'A') + 10;
  if (c >= 'a' && c <= 'z') return static_cast<uint32_t>(c - 'a') + 36;
  return c == '+' ? 62 : 63;
}

template <typename Fn>
void for_each_part(std::string_view text, char separator, Fn fn) {
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    fn(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

CodePointSet value_of_partition(const PartitionData& data, uint32_t value) {
  CodePointSet set;
  char32_t at = 0;
  for (NumberReader numbers(data.runs); !numbers.done();) {
    const uint32_t of_run = numbers.next(), length = numbers.next();
    if (of_run == value) set.append(at, at + length - 1);
    at += length;
  }
  return set;
}

/// Where a name leads: to a value of a partition, or (data null) to runs of its own.
struct Source {
  const PartitionData* data;
  uint32_t value;
  const char* runs;
};

std::unordered_map<std::string_view, Source> sources() {
  std::unordered_map<std::string_view, Source> all;
  for (const PartitionData* data : {&kCategories, &kScripts, &kBlocks}) {
    uint32_t value = 0;
    for_each_part(data->names, ',', [&](std::string_view names) {
      ++value;
      for_each_part(names, '|', [&](std::string_view name) { all.emplace(name, Source{data, value, nullptr}); });
    });
  }
  for (const char* unknown : {"unknown", "zzzz"}) all.emplace(unknown, Source{&kScripts, 0, nullptr});
  for (size_t i = 0; i < kBinarySetCount; ++i) {
    for_each_part(kBinarySets[i].names, '|', [&](std::string_view name) {
      all.emplace(name, Source{nullptr, 0, kBinarySets[i].runs});
    });
  }
  return all;
}

/// Names that stand for several others, or for the rest.
struct Union {
  std::string_view names;
  std::array<const char*, 8> members;
  bool complement = false;
};
constexpr Union kUnions[] = {
    {"l|letter", {"lu", "ll", "lt", "lm", "lo"}},
    {"lc|casedletter", {"lu", "ll", "lt"}},
    {"m|mark|combiningmark", {"mn", "mc", "me"}},
    {"n|number", {"nd", "nl", "no"}},
    {"p|punctuation|punct", {"pc", "pd", "ps", "pe", "pi", "pf", "po"}},
    {"s|symbol", {"sm", "sc", "sk", "so"}},
    {"z|separator", {"zs", "zl", "zp"}},
    {"c|other", {"cc", "cf", "cn", "co", "cs"}},
    {"digit", {"nd"}},
    {"cntrl", {"cc"}},
    {"alnum", {"alphabetic", "nd"}},
    {"posixpunct", {"p", "s"}},
    {"assigned", {"cn"}, true},
    {"any", {}, true},
    {"ascii", {"inbasiclatin"}},
};

std::string folded(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == ' ' || c == '-' || c == '_') continue;
    out += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return out;
}

struct CaseTable {
  std::vector<std::vector<char32_t>> groups;
  std::unordered_map<char32_t, size_t> group_of;

  CaseTable() {
    char32_t first = 0;
    for (NumberReader numbers(kCaseFolds); !numbers.done();) {
      std::vector<char32_t> group(numbers.next());
      first += numbers.next();
      char32_t at = first;
      for (size_t i = 0; i < group.size(); ++i) {
        if (i > 0) at += numbers.next();
        group[i] = at;
        group_of.emplace(at, groups.size());
      }
      groups.push_back(std::move(group));
    }
  }
};

const CaseTable& case_table() {
  static const CaseTable kTable;
  return kTable;
}

}  // namespace

uint32_t NumberReader::next() {
  uint32_t value = 0;
  for (int shift = 0; *at_ != '\0'; shift += 5) {
    const uint32_t d = digit(*at_++);
    value |= (d & 31) << shift;
    if (d < 32) break;
  }
  return value;
}

std::vector<uint8_t> read_partition(const char* runs) {
  std::vector<uint8_t> values;
  values.reserve(kCodePointMax + 1);
  for (NumberReader numbers(runs); !numbers.done();) {
    const auto value = static_cast<uint8_t>(numbers.next());
    values.insert(values.end(), numbers.next(), value);
  }
  return values;
}

CodePointSet decode_set(const char* runs) {
  CodePointSet set;
  char32_t at = 0;
  for (NumberReader numbers(runs); !numbers.done();) {
    at += numbers.next();
    const uint32_t length = numbers.next();
    set.append(at, at + length - 1);
    at += length;
  }
  return set;
}

std::optional<CodePointSet> property(std::string_view name) {
  static const auto kSources = sources();
  const std::string key = folded(name);
  if (const auto it = kSources.find(key); it != kSources.end()) {
    const Source& source = it->second;
    return source.data == nullptr ? decode_set(source.runs) : value_of_partition(*source.data, source.value);
  }
  for (const Union& entry : kUnions) {
    bool named = false;
    for_each_part(entry.names, '|', [&](std::string_view part) { named = named || part == key; });
    if (!named) continue;
    CodePointSet set;
    for (const char* member : entry.members) {
      if (member != nullptr) set.add(*property(member));
    }
    return entry.complement ? set.complement() : set;
  }
  return std::nullopt;
}

std::optional<CodePointSet> posix_bracket(std::string_view name) {
  static constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"alnum", "alnum"},      {"alpha", "alphabetic"},
      {"blank", "blank"},      {"cntrl", "cc"},
      {"digit", "nd"},         {"graph", "graph"},
      {"lower", "lowercase"},  {"print", "print"},
      {"punct", "posixpunct"}, {"space", "whitespace"},
      {"upper", "uppercase"},  {"xdigit", "xdigit"},
      {"ascii", "ascii"},      {"word", ""}};
  for (const auto& [bracket, source] : kNames) {
    if (bracket != name) continue;
    if (bracket != "word") return property(source);
    CodePointSet set;
    for (const char* member : {"alphabetic", "m", "nd", "pc"}) set.add(*property(member));
    return set;
  }
  return std::nullopt;
}

const CodePointSet& bare_word() {
  static const CodePointSet kSet = *property("word");
  return kSet;
}

CodePointSet case_variants(char32_t c) {
  CodePointSet set(c, c);
  const CaseTable& table = case_table();
  if (const auto it = table.group_of.find(c); it != table.group_of.end()) {
    for (const char32_t other : table.groups[it->second]) set.add(other);
  }
  return set;
}

void close_over_case(CodePointSet& set) {
  std::vector<char32_t> variants;
  for (const auto& group : case_table().groups) {
    if (std::any_of(group.begin(), group.end(), [&](char32_t c) { return set.contains(c); }))
      variants.insert(variants.end(), group.begin(), group.end());
  }
  std::sort(variants.begin(), variants.end());
  CodePointSet more;
  for (const char32_t c : variants) more.append(c, c);
  set.add(more);
}

std::span<const LongFold> long_folds() {
  static const std::vector<LongFold> kFolds = [] {
    std::vector<LongFold> folds;
    for (NumberReader numbers(kLongFolds); !numbers.done();) {
      LongFold fold{numbers.next(), std::vector<char32_t>(numbers.next())};
      for (char32_t& c : fold.to) c = numbers.next();
      folds.push_back(std::move(fold));
    }
    return folds;
  }();
  return kFolds;
}

bool equals_fold(std::span<const char32_t> text, const LongFold& fold) {
  return std::equal(text.begin(), text.end(), fold.to.begin(), fold.to.end(), [](char32_t a, char32_t b) {
    const CaseTable& table = case_table();
    const auto group_a = table.group_of.find(a), group_b = table.group_of.find(b);
    return a == b ||
           (group_a != table.group_of.end() && group_b != table.group_of.end() && group_a->second == group_b->second);
  });
}

}  // namespace moestro::tok

#pragma once
// Sets of code points, as ranges for the arithmetic of regex classes and as a bitmap for fast look-ups.

#include <bitset>
#include <cstdint>
#include <memory>
#include <vector>

namespace moestro::tok {

inline constexpr char32_t kCodePointMax = 0x10FFFF;

class CodePointSet {
 public:
  struct Range {
    char32_t first, last;
    bool operator==(const Range&) const = default;
  };

  CodePointSet() = default;
  CodePointSet(char32_t first, char32_t last) : ranges_{{first, last}} {}
  static CodePointSet all() { return {0, kCodePointMax}; }

  /// `first` lies after everything that is in the set: for decoders of sorted tables.
  void append(char32_t first, char32_t last);
  void add(const CodePointSet& other);
  void add(char32_t c) { add(CodePointSet(c, c)); }

  CodePointSet complement() const;
  CodePointSet intersection(const CodePointSet& other) const;
  bool contains(char32_t c) const;
  bool empty() const { return ranges_.empty(); }
  /// In order, with a gap between each two.
  const std::vector<Range>& ranges() const { return ranges_; }
  bool operator==(const CodePointSet&) const = default;

 private:
  std::vector<Range> ranges_;
};

class CodePointBitmap {
 public:
  explicit CodePointBitmap(const CodePointSet& set);
  bool contains(char32_t c) const { return c <= kCodePointMax && (*bits_)[c]; }

 private:
  std::unique_ptr<std::bitset<kCodePointMax + 1>> bits_;
};

}  // namespace moestro::tok

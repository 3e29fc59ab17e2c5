#pragma once
// GGUF files made in memory, for tests of their reader.

#include <cstring>
#include <string>
#include <vector>

#include "store/pack/gguf_header.h"

namespace moestro::testing {

/// Appends numbers, texts and entries as the format has them.
class GgufBytes {
 public:
  GgufBytes& raw(const std::string& bytes) {
    text_ += bytes;
    return *this;
  }
  template <typename T>
  GgufBytes& number(T value) {
    text_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& text(const std::string& s) { return number<uint64_t>(s.size()).raw(s); }
  GgufBytes& head(uint64_t tensors, uint64_t entries, uint32_t version = 3) {
    return raw("GGUF").number<uint32_t>(version).number(tensors).number(entries);
  }
  GgufBytes& entry(const std::string& key, uint32_t value) {
    return text(key).number<uint32_t>(4).number(value);
  }
  GgufBytes& entry(const std::string& key, const std::string& value) {
    return text(key).number<uint32_t>(8).text(value);
  }
  /// dimensions: columns first.
  GgufBytes& tensor(const std::string& name, const std::vector<uint64_t>& dimensions, uint32_t type, uint64_t offset) {
    text(name).number(static_cast<uint32_t>(dimensions.size()));
    for (const uint64_t n : dimensions) number(n);
    return number(type).number(offset);
  }
  /// Zeros up to a multiple of 32, then `data` more.
  GgufBytes& data(size_t count) {
    text_.resize((text_.size() + 31) / 32 * 32 + count);
    return *this;
  }
  const std::string& bytes() const { return text_; }
  Result<store::GgufParse> parse() const {
    return store::parse_gguf_header(std::as_bytes(std::span(text_)), text_.size(), "x.gguf");
  }

 private:
  std::string text_;
};

}  // namespace moestro::testing

#pragma once
// Chat templates and the variables that they meet, written by the bytes of an input: for fuzzing, and for a test.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace moestro::test {

struct GeneratedChat {
  std::string source;  ///< a template that parses
  nlohmann::ordered_json variables;
};
/// The first bytes write the template. The last, from the end on and at most half of them, write the variables; those
/// that they say nothing of, or zero, are the usual ones.
GeneratedChat generated_chat(const uint8_t* data, size_t size);
nlohmann::ordered_json usual_variables();

struct Rendering {
  enum class Kind { kText, kError, kNotParsed } kind;
  std::string text;  ///< or the error in words
};
/// Renders twice under a small limit: both give the same text or the same error, and no more text than the limit
/// allows.
Rendering render_twice(std::string_view source, const nlohmann::ordered_json& variables);

}  // namespace moestro::test

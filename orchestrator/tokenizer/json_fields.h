#pragma once
// Typed reading of tokenizer.json: every wrong type is an error that names the field.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::tok {

using Json = nlohmann::json;

/// How deep parts (Sequence in Sequence) may nest.
inline constexpr int kPartDepthMax = 16;

/// The member, or nullptr if it is absent or null.
const Json* member(const Json& object, const char* key);

Result<bool> read_bool(const Json& object, const char* key, bool fallback);
Result<int64_t> read_int(const Json& object, const char* key, int64_t low, int64_t high);
Result<std::string> read_string(const Json& object, const char* key);
Result<std::string> read_string_or(const Json& object, const char* key, std::string fallback);
/// The one character that the member holds.
Result<std::string> read_char(const Json& object, const char* key);
/// "type" of a part, or `fallback`, where it is not empty and the part has none. `where` ("the pre-tokenizer") begins
/// the error.
Result<std::string> read_kind(const Json& part, std::string_view where, std::string_view fallback = "");
/// The array `key` of a Sequence.
Result<const Json*> read_array(const Json& object, const char* key);

Status unknown_kind(std::string_view where, std::string_view kind);

}  // namespace moestro::tok

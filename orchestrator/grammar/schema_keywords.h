#pragma once
// Which words a schema may use, and their values.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::grammar {

using SchemaJson = nlohmann::ordered_json;

/// Refuses what is neither understood nor a mere remark.
Status check_keywords(const SchemaJson& schema, const std::string& path);
/// The types that the schema allows, by "type" or by what its other words speak of; empty: any value.
Result<std::vector<std::string>> types_of(const SchemaJson& schema, const std::string& path);
/// A whole number, `least` or more.
Result<std::optional<int64_t>> whole_number(const SchemaJson& schema, const char* key, const std::string& path, int64_t least = 0);
/// The bounds of an integer, cut to what has at most 18 digits.
Result<std::pair<int64_t, int64_t>> integer_bounds(const SchemaJson& schema, const std::string& path);
/// What oneOf says is what anyOf says only where no value can be of two alternatives.
Status check_one_of(const SchemaJson& list, const std::string& path);
/// The pattern that stands for a "format"; nothing if it is not known.
std::optional<std::string> pattern_of_format(const std::string& format);

/// "where: what".
Status schema_error(Code code, const std::string& path, const std::string& what);

}  // namespace moestro::grammar

#pragma once
// Which words a schema may use, and their values.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "orchestrator/grammar/number_range.h"

namespace moestro::grammar {

using SchemaJson = nlohmann::ordered_json;

/// Whether the word says which values are allowed; "type" apart, which stands beside each of them.
bool shapes_values(const std::string& word);
/// The words of a schema (an object) that are neither understood nor mere remarks.
std::vector<std::string> unknown_keywords(const SchemaJson& schema);
/// The types that the schema allows, by "type" or by what its other words speak of; empty: any value.
Result<std::vector<std::string>> types_of(const SchemaJson& schema, const std::string& path);
/// A whole number, `least` or more.
Result<std::optional<int64_t>> whole_number(const SchemaJson& schema, const char* key, const std::string& path,
                                            int64_t least = 0);
/// The bounds of an integer, cut to what has at most 18 digits.
Result<std::pair<int64_t, int64_t>> integer_bounds(const SchemaJson& schema, const std::string& path);
/// The bounds of a number.
Result<NumberRange> number_bounds(const SchemaJson& schema, const std::string& path);
/// What a number is to be a multiple of; 0: of nothing.
Result<double> divisor_of(const SchemaJson& schema, const std::string& path);
/// What oneOf says is what anyOf says only where no value can be of two alternatives.
/// Why that is not certain of a list of alternatives; empty: it is.
std::string overlap_of(const SchemaJson& list);
/// The pattern that stands for a "format"; nothing if it is not known.
std::optional<std::string> pattern_of_format(const std::string& format);

/// "where: what".
Status schema_error(Code code, const std::string& path, const std::string& what);

}  // namespace moestro::grammar

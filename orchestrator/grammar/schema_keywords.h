#pragma once
// The supported keywords of a schema, and their values.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "orchestrator/grammar/number_range.h"

namespace moestro::grammar {

using SchemaJson = nlohmann::ordered_json;

/// Of a type that a schema allows, but none of its values. In a list of types another one may have values.
inline constexpr Code kNoValue = Code::kNotFound;

/// Whether the keyword restricts the allowed values, except "type", which may accompany any of them.
bool shapes_values(const std::string& word);
/// The keywords of a schema (an object) that are neither supported nor annotations.
std::vector<std::string> unknown_keywords(const SchemaJson& schema);
/// What a reference ("#/...") means in the schema `root`, also as in a URI, percent-encoded; null: nothing.
const SchemaJson* target_of(const std::string& reference, const SchemaJson& root);
/// The types that the schema allows, from "type" or from its other keywords; empty: any value.
Result<std::vector<std::string>> types_of(const SchemaJson& schema, const std::string& path);
/// A whole number, `least` or more.
Result<std::optional<int64_t>> whole_number(const SchemaJson& schema, const char* key, const std::string& path,
                                            int64_t least = 0);
/// The bounds of an integer, limited to 64 bits; a missing one to kIntegerMax, unless the other one is beyond it.
/// nullopt: all integers that the bounds allow are beyond 64 bits. kNoValue: they allow none.
Result<std::optional<std::pair<int64_t, int64_t>>> integer_bounds(const SchemaJson& schema, const std::string& path);
/// The bounds of a number.
Result<NumberRange> number_bounds(const SchemaJson& schema, const std::string& path);
/// The value of multipleOf; 0: none.
Result<double> divisor_of(const SchemaJson& schema, const std::string& path);
/// oneOf equals anyOf only if no value fits two alternatives. Why that is not certain for a list of alternatives;
/// empty: it is certain.
std::string overlap_of(const SchemaJson& list);
/// The pattern of a "format"; nullopt if the format is unknown.
std::optional<std::string> pattern_of_format(const std::string& format);

/// "where: what".
Status schema_error(Code code, const std::string& path, const std::string& what);

}  // namespace moestro::grammar

#pragma once

#include <nlohmann/json_fwd.hpp>

#include "orchestrator/chat/value.h"

namespace moestro::jinja {

/// Throws TemplateError for JSON that nests too deeply. Strings that are not UTF-8 get U+FFFD for their
/// broken parts.
Value from_json(const nlohmann::json& json, int depth = 0);
Value from_json(const nlohmann::ordered_json& json, int depth = 0);
/// Throws TemplateError for what is no JSON, too.
Value parse_json(std::string_view text);

}  // namespace moestro::jinja

#pragma once
// JSON from files of other programs. Errors are a Status, and a key that occurs twice in one object is an error.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::model {

/// Parses `text`, whose top level must be an object. `where` names the file in errors.
Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where);

/// `text` in a form for one-line messages: in quotes, control characters and what is no UTF-8 replaced, at most 120
/// bytes.
std::string in_quotes(std::string_view text);

}  // namespace moestro::model

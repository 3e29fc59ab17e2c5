#pragma once
// JSON from files that others wrote: errors as Status, and a key given twice in one object is an error, not a choice.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::model {

/// Parses `text`, whose top level must be an object. `where` names the file in errors.
Result<nlohmann::json> parse_json_object(std::string_view text, std::string_view where);

/// `text` as it may stand in a one-line message: in quotes, control characters replaced, at most 120 bytes.
std::string in_quotes(std::string_view text);

}  // namespace moestro::model

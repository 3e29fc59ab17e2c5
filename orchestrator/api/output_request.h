#pragma once
// The fields of a chat that say which functions its answer may call: tools, tool_choice.

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/field_reader.h"

namespace moestro::orchestrator {

void read_tools(FieldReader& f, CompletionRequest& r);
/// The calls of a message as templates want them: arguments as objects. An error's text if they are none.
std::string plain_tool_calls(RequestJson& calls);

}  // namespace moestro::orchestrator

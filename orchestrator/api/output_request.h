#pragma once
// The fields of a request that say what its answer shall look like: response_format, tools, tool_choice.

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/field_reader.h"

namespace moestro::orchestrator {

void read_response_format(FieldReader& f, CompletionRequest& r);
void read_tools(FieldReader& f, CompletionRequest& r);
/// The calls of a message as templates want them: arguments as objects. An error's text if they are none.
std::string plain_tool_calls(RequestJson& calls);

}  // namespace moestro::orchestrator

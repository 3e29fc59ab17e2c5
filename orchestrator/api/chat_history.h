#pragma once
// Past messages with tool calls as chat templates want them. From any thread.

#include <set>
#include <stop_token>
#include <string>

#include "common/status.h"
#include "orchestrator/api/request_json.h"
#include "orchestrator/chat/chat_template.h"
#include "orchestrator/forms/tool_form.h"

namespace moestro::orchestrator {

/// The ids of past calls.
std::set<std::string> call_ids(const RequestJson& messages);
/// Whether history_in_form changes anything.
bool has_own_history(const ToolForm& form);
/// The messages in the words of `form`: reasoning in the field that its templates read, one call to a message where an
/// answer has no more, ids that hold the function's name. What other servers and models have given fits then too.
RequestJson history_in_form(RequestJson messages, const ToolForm& form);

/// Renders them. Templates that take no `content` of null next to calls, or arguments only as text, get what they take.
Result<std::string> render_history(const ChatTemplate& chat_template, const RequestJson& messages,
                                   const RequestJson& variables, const std::stop_token& stop = {});

}  // namespace moestro::orchestrator

#pragma once
// From a chat's messages to the text that the model goes on with. From any thread.

#include <stop_token>
#include <string>
#include <variant>

#include "orchestrator/api/completion_request.h"
#include "orchestrator/api/served_model.h"

namespace moestro::orchestrator {

/// Whether reasoning_effort changes the prompt. "none" also turns thinking off where the template has a switch for it.
bool takes_effort(const ServedModel& model, const CompletionRequest& request);
/// Adds what reasoning_effort means to the template's variables.
void add_reasoning_effort(const ServedModel& model, const CompletionRequest& request, RequestJson& arguments);

/// The prompt's text. With continue_final_message it ends inside the last message. `form`: of past calls; null: not
/// known. Errors name the field at fault. It ends soon after a stop was asked for, with an error that nobody reads.
std::variant<std::string, ApiError> render_chat(const ChatTemplate& chat_template, const CompletionRequest& request,
                                                const RequestJson& arguments, const ToolForm* form = nullptr,
                                                const std::stop_token& stop = {});
/// Whether the answer goes on with reasoning that the prompt has begun.
bool begins_in_reasoning(const ReasoningStyle& style, const CompletionRequest& request, const std::string& prompt);

}  // namespace moestro::orchestrator

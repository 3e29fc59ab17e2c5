#include "orchestrator/api/chat_prompt.h"

#include "orchestrator/api/chat_history.h"

namespace moestro::orchestrator {

namespace {
/// Stands at the end of the message that is left open, to find it in what the template makes of it. Templates may trim
/// the space.
constexpr std::string_view kOpenEnd = "MOESTRO_THE_ANSWER_GOES_ON_HERE ";
constexpr const char* kThinkingSwitch = "enable_thinking";
constexpr const char* kContinue = "continue_final_message";

bool turns_thinking_off(const ServedModel& model, const CompletionRequest& request) {
  return request.reasoning_effort == "none" && model.knows_thinking &&
         !request.template_arguments.contains(kThinkingSwitch);
}
}  // namespace

bool takes_effort(const ServedModel& model, const CompletionRequest& request) {
  return model.knows_effort || turns_thinking_off(model, request);
}

void add_reasoning_effort(const ServedModel& model, const CompletionRequest& request, RequestJson& arguments) {
  if (!request.reasoning_effort.empty()) arguments["reasoning_effort"] = request.reasoning_effort;
  if (turns_thinking_off(model, request)) arguments[kThinkingSwitch] = false;
}

std::variant<std::string, ApiError> render_chat(const ChatTemplate& chat_template, const CompletionRequest& request,
                                                const RequestJson& arguments, const ToolForm* form,
                                                const std::stop_token& stop) {
  const bool own_history = form != nullptr && has_own_history(*form);
  RequestJson changed;  // large chats are not copied for nothing
  if (request.continue_final_message || own_history) changed = request.messages;
  if (request.continue_final_message) changed.back()["content"].get_ref<std::string&>() += kOpenEnd;
  if (own_history) changed = history_in_form(std::move(changed), *form);
  auto text = render_history(chat_template, changed.is_null() ? request.messages : changed, arguments, stop);
  if (!text.is_ok()) return bad_request("'messages': " + text.status().message(), "messages");
  if (!request.continue_final_message) return std::move(*text);
  const size_t end = text->rfind(kOpenEnd.substr(0, kOpenEnd.size() - 1));
  if (end == std::string::npos)
    return not_supported(kContinue, "the chat template does not show the last message's 'content'");
  const bool trimmed = !std::string_view(*text).substr(end).starts_with(kOpenEnd);
  text->resize(end);
  if (trimmed) text->resize(text->find_last_not_of(" \t\r\n") + 1);  // as it would have been without what was added
  return std::move(*text);
}

bool begins_in_reasoning(const ReasoningStyle& style, const CompletionRequest& request, const std::string& prompt) {
  if (!request.continue_final_message) return opens_reasoning(style, prompt);
  return leaves_reasoning_open(style, request.messages.back()["content"].get_ref<const std::string&>());
}

}  // namespace moestro::orchestrator

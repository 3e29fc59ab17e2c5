#include "services/cli/client/stream_events.h"

#include <nlohmann/json.hpp>

#include "services/cli/common/json_text.h"

namespace moestro::cli {

Result<StreamEvent> parse_stream_event(std::string_view data) {
  StreamEvent event;
  if (data == "[DONE]") {
    event.done = true;
    return event;
  }
  const Result<nlohmann::json> parsed = parse_json(data);
  if (!parsed.is_ok() || !parsed->is_object())
    return corrupt("the server sent an event that is not a JSON object");
  if (parsed->contains("error")) return unavailable("the server broke off: " + error_message(data));
  const auto choices = parsed->find("choices");
  if (choices == parsed->end() || !choices->is_array() || choices->empty()) return event;  // usage alone
  const nlohmann::json& choice = choices->front();
  event.finish_reason = text_or(choice, "finish_reason");
  event.text = text_or(choice, "text");
  if (choice.is_object() && choice.contains("delta")) {
    event.text += text_or(choice["delta"], "content");
    event.reasoning = text_or(choice["delta"], "reasoning_content");
  }
  return event;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n' || c == '\t' || (byte >= 0x20 && byte != 0x7f)) out += c;
  }
  return out;
}

}  // namespace moestro::cli

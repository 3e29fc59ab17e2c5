#include "services/cli/bench/serve/completion_json.h"

#include <nlohmann/json.hpp>

#include "services/cli/common/json_text.h"

namespace moestro::cli {
namespace {

using nlohmann::json;

const json* member(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

bool has_text(const json& object, const char* key) {
  const json* value = member(object, key);
  return value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty();
}

/// A completion's chunk is a token's, even where its text is held back: but for the last, which only says why it is the
/// last. A chat's first has the role alone.
void read_choice(const json& choice, StreamChunk& chunk) {
  if (!choice.is_object()) return;
  const bool ends = member(choice, "finish_reason") != nullptr;
  chunk.ended = chunk.ended || ends;
  const json* delta = member(choice, "delta");
  const bool chat =
      delta != nullptr && delta->is_object() && (has_text(*delta, "content") || has_text(*delta, "reasoning_content"));
  chunk.piece = chunk.piece || chat || has_text(choice, "text") || (choice.contains("text") && !ends);
}

}  // namespace

std::string completion_body(const CompletionFields& f, const std::string& prompt) {
  json head = {{"model", f.model},
               {"max_tokens", f.max_tokens},
               {"temperature", f.temperature},
               {"seed", f.seed},
               {"ignore_eos", true}};
  if (f.stream) head["stream"] = true, head["stream_options"] = {{"include_usage", true}};
  std::string body = json_text(head);
  body.pop_back();
  return body + R"(,"prompt":[)" + prompt + "]}";
}

Result<StreamChunk> read_stream_chunk(std::string_view data) {
  const auto event = parse_json(data);
  if (!event.is_ok() || !event->is_object()) return corrupt("an event is no JSON object");
  if (event->contains("error")) return unavailable(error_message(data));
  StreamChunk chunk;
  if (const auto usage = event->find("usage");
      usage != event->end() && usage->is_object() && usage->contains("completion_tokens"))
    chunk.usage_tokens = static_cast<int64_t>(count_or(*usage, "completion_tokens"));
  if (const auto choices = event->find("choices"); choices != event->end() && choices->is_array())
    for (const json& choice : *choices) read_choice(choice, chunk);
  return chunk;
}

}  // namespace moestro::cli

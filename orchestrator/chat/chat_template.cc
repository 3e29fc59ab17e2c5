#include "orchestrator/chat/chat_template.h"

#include <exception>
#include <nlohmann/json.hpp>

#include "orchestrator/chat/ast.h"
#include "orchestrator/chat/error.h"
#include "orchestrator/chat/interpreter.h"
#include "orchestrator/chat/json_values.h"
#include "orchestrator/chat/text.h"

namespace moestro {
namespace {

constexpr size_t kSourceBytesMax = size_t{1} << 20;

Status to_status(const jinja::TemplateError& error) {
  if (error.by_template) return Status(error.code, error.message);
  const std::string where =
      error.line > 0 ? "the chat template, line " + std::to_string(error.line) : "the chat template";
  return Status(error.code, where + ": " + error.message);
}

using Globals = std::vector<std::pair<std::string, jinja::Value>>;

void set_global(Globals& globals, const std::string& name, jinja::Value value) {
  std::erase_if(globals, [&](const auto& global) { return global.first == name; });
  globals.emplace_back(name, std::move(value));
}

}  // namespace

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kSourceBytesMax) return invalid_argument("the chat template is longer than 1 MiB");
  try {
    return ChatTemplate(std::make_shared<const jinja::Template>(jinja::parse_template(jinja::sanitize_utf8(source))));
  } catch (const jinja::TemplateError& error) {
    return to_status(error);
  }
}

template <typename Json>
Result<std::string> ChatTemplate::render_any(const Json& messages, const Json& extra,
                                             std::chrono::system_clock::time_point now,
                                             const std::stop_token& stop) const {
  try {
    // transformers passes these to every template: where they are not given, they are defined all the same.
    Globals globals{{"tools", jinja::Value::none()},
                    {"documents", jinja::Value::none()},
                    {"add_generation_prompt", jinja::Value::boolean(false)}};
    if (extra.is_object()) {
      for (auto it = extra.begin(); it != extra.end(); ++it)
        set_global(globals, it.key(), jinja::from_json(it.value()));
    } else if (!extra.is_null()) {
      return invalid_argument("the variables of a chat template must be an object");
    }
    set_global(globals, "messages", jinja::from_json(messages));
    jinja::Interpreter interpreter(std::move(globals), now, jinja::kUnitsMax, stop);
    return interpreter.render(*body_);
  } catch (const jinja::TemplateError& error) {
    return to_status(error);
  } catch (const std::bad_alloc&) {
    return exhausted("out of memory while rendering the chat template");
  }
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& extra,
                                         std::chrono::system_clock::time_point now,
                                         const std::stop_token& stop) const {
  return render_any(messages, extra, now, stop);
}

Result<std::string> ChatTemplate::render(const nlohmann::json& messages, const nlohmann::json& extra,
                                         std::chrono::system_clock::time_point now,
                                         const std::stop_token& stop) const {
  return render_any(messages, extra, now, stop);
}

}  // namespace moestro

#pragma once
// Chat templates turn a list of messages into the prompt format that the model was trained on.

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <stop_token>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro {

namespace jinja {
struct Template;
}

/// Immutable; copies share their contents. render() may be called from any thread.
class ChatTemplate {
 public:
  /// Errors: kInvalidArgument for a syntax error, kUnsupported for an unknown construct; both name the line.
  static Result<ChatTemplate> parse(std::string_view source);

  /// `messages` becomes the variable of that name, the members of `extra` (bos_token, eos_token, ...) further ones.
  /// As in transformers, tools and documents are none and add_generation_prompt is false where `extra` has none. `now`
  /// is what strftime_now shows, in local time. Errors: kInvalidArgument with the template's own words where it calls
  /// raise_exception, and for what goes wrong in it; kUnsupported for a function or filter that is not known;
  /// kExhausted if it runs beyond its limits; kCancelled soon after a stop was asked for. Prefer ordered_json:
  /// templates print tools and arguments in the order of their keys, which plain json has lost.
  Result<std::string> render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& extra,
                             std::chrono::system_clock::time_point now = std::chrono::system_clock::now(),
                             const std::stop_token& stop = {}) const;
  Result<std::string> render(const nlohmann::json& messages, const nlohmann::json& extra,
                             std::chrono::system_clock::time_point now = std::chrono::system_clock::now(),
                             const std::stop_token& stop = {}) const;

 private:
  explicit ChatTemplate(std::shared_ptr<const jinja::Template> body) : body_(std::move(body)) {}
  template <typename Json>
  Result<std::string> render_any(const Json& messages, const Json& extra, std::chrono::system_clock::time_point now,
                                 const std::stop_token& stop) const;
  std::shared_ptr<const jinja::Template> body_;
};

}  // namespace moestro

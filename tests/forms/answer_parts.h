#pragma once
// For tests of forms: an answer that comes in pieces, taken apart as the API does it.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "orchestrator/forms/reasoning_style.h"
#include "orchestrator/forms/tool_form.h"

namespace moestro::orchestrator::testing {

struct AnswerParts {
  std::string reasoning, content;
  nlohmann::json calls = nlohmann::json::array();  ///< {"name", "arguments"} with the text, and "id" if there is one
  std::vector<std::string> order = {};  ///< of its items: "reasoning", "content", "call 0" and so on
  bool operator==(const AnswerParts&) const = default;
};
std::ostream& operator<<(std::ostream& out, const AnswerParts& parts);

struct AnswerReader {
  const ToolForm& form;
  std::optional<ReasoningStyle> style;
  bool open = false;  ///< the prompt has begun the reasoning
  const ToolArguments& tools;

  /// The joined deltas. Fails the test if a delta names another call than the last one that has begun.
  AnswerParts read(const std::vector<std::string>& pieces) const;
};

/// The bytes of a file of the source tree; fails the test if there is none.
std::string file_of_tree(const std::string& path);
/// The template in tests/chat/models.
inline std::string published_template(const std::string& name) {
  return file_of_tree("tests/chat/models/" + name + ".jinja");
}
/// `text` in pieces of `bytes`.
std::vector<std::string> pieces_of(const std::string& text, size_t bytes);

}  // namespace moestro::orchestrator::testing

#pragma once
// What a chat's answer says, as OpenAI's deltas.

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace moestro::orchestrator {

/// Deltas in the model's order. A reader takes reasoning before content and content before calls, so a delta that has a
/// later member gets no earlier one: the next delta does.
class ChatDeltas {
 public:
  void add_reasoning(const std::string& text) { add_text(kReasoning, text); }
  void add_content(const std::string& text) { add_text(kContent, text); }
  void add_call(nlohmann::json call);
  std::vector<nlohmann::json> take() { return std::exchange(deltas_, {}); }

 private:
  enum Member { kReasoning, kContent, kCalls };
  nlohmann::json& member(Member m);
  void add_text(Member m, const std::string& text);

  std::vector<nlohmann::json> deltas_;
  Member last_ = kReasoning;  ///< of the last delta
};

/// The message of a whole answer that says the same, with one text and the calls behind it. `reasons`: it has
/// "reasoning_content" in any case.
nlohmann::json joined_message(const std::vector<nlohmann::json>& deltas, bool reasons);

}  // namespace moestro::orchestrator

#pragma once
// Calls that are JSON objects with a name and arguments (Hermes, Qwen), or lists of them (Mistral).

#include "orchestrator/api/tool_calls.h"

namespace moestro::orchestrator {

class JsonCallParser final : public ToolCallParser {
 public:
  using ToolCallParser::ToolCallParser;
  void finish() override;

 private:
  enum class Place { kContent, kBeforeCall, kCall, kAfterCall };
  bool step() override;
  bool content_step();
  bool before_call_step();
  bool call_step();
  bool after_call_step();
  bool end_of_call();
  void reject();
  void value_done(std::string_view value);
  void say_value(std::string_view text);

  Place place_ = Place::kContent;
  bool first_in_list_ = true;
  // Of the object under way.
  int depth_ = 0;
  bool in_string_ = false, escaped_ = false, in_value_ = false;
  std::string key_, value_;
  size_t said_ = 0;    ///< bytes of the arguments that have been given out
  std::string early_;  ///< arguments that came before the name
  bool named_ = false, has_arguments_ = false;
};

}  // namespace moestro::orchestrator

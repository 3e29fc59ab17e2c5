#pragma once
// Reads calls that are JSON objects (object_form.h).

#include "orchestrator/forms/object_form.h"

namespace moestro::orchestrator {

/// Where objects stand bare, one whose name is none of the tools' is text.
class ObjectCallParser final : public ToolCallParser {
 public:
  ObjectCallParser(const ObjectMarks& marks, const ToolArguments& tools)
      : ToolCallParser(marks.begin), marks_(marks), tools_(tools) {
    if (marks_.bare) place_ = Place::kStart;
  }
  void finish() override;

 private:
  enum class Place { kStart, kContent, kBeforeCall, kCall, kAfterCall, kEnd };
  bool step() override;
  bool start_step();
  bool content_step();
  bool before_call_step();
  bool call_step();
  bool after_call_step();
  bool end_step();
  bool end_of_call();
  void reject();
  void value_done(std::string_view value);
  void say_value(std::string_view text);

  const ObjectMarks marks_;
  const ToolArguments& tools_;
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

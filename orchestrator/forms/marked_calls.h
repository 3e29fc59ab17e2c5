#pragma once
// Reads calls that are a name and a JSON object with markers around both (marked_form.h).

#include <set>

#include "orchestrator/forms/json_text.h"
#include "orchestrator/forms/marked_form.h"

namespace moestro::orchestrator {

/// A call is certain once its arguments begin, or the text ends behind the mark of its name. Between calls of a
/// section, and behind the last one, white space and the markers of ends are dropped, also where they are not all
/// there.
class MarkedCallParser final : public ToolCallParser {
 public:
  explicit MarkedCallParser(const CallMarks& marks)
      : ToolCallParser(marks.section_begin.empty() ? marks.call_begin : marks.section_begin), marks_(marks) {}
  void avoid_ids(std::set<std::string> ids) override { ids_ = std::move(ids); }
  void finish() override;

 private:
  enum class Place { kContent, kBeforeCall, kHead, kArguments, kAfterCall };
  struct Head {
    std::string name, id;
  };
  bool step() override;
  bool read_before_call();
  bool read_head();
  bool read_arguments();
  void begin_cut_call();
  bool read_after_call();
  Head head_of(std::string_view text);
  std::string new_id(const std::string& name, std::string_view number);
  bool none();

  const CallMarks marks_;
  Place place_ = Place::kContent;
  JsonEnd end_;
  std::set<std::string> ids_;  ///< of past calls and of the answer so far
};

}  // namespace moestro::orchestrator

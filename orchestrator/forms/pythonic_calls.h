#pragma once
// Reads calls in Python's syntax (pythonic_form.h).

#include <map>

#include "orchestrator/forms/python_literal.h"
#include "orchestrator/forms/tool_arguments.h"
#include "orchestrator/forms/tool_call_parser.h"

namespace moestro::orchestrator {

/// Calls stand at the beginning of the answer, or behind `begin`. A call is certain once its name, one of the tools',
/// and the '(' behind it have been said. An argument is given out when it has ended; one that is no literal is a
/// string. If a call goes wrong, its arguments stay unfinished, and what follows is content.
/// If the text ends in a value, what is given out of it is the beginning of JSON.
class PythonicCallParser final : public ToolCallParser {
 public:
  PythonicCallParser(std::string begin, const ToolArguments& tools) : ToolCallParser(std::move(begin)), tools_(tools) {}
  void finish() override;

 private:
  enum class Place { kStart, kContent, kName, kKey, kValue, kAfterCall };
  bool step() override;
  bool read_start();
  bool read_name();
  bool read_key();
  bool read_value();
  bool read_after_call();
  bool end_call();
  bool none();

  const ToolArguments& tools_;
  Place place_ = Place::kStart;
  // Of the call under way.
  std::string name_;
  bool first_ = true;
  PythonValueEnd end_;
  size_t scanned_ = 0;  ///< bytes of rest_ in which the value does not end
};

}  // namespace moestro::orchestrator

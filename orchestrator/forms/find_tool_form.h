#pragma once
// Which form of tool calls a model has, by its chat template and its tokens.

#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "orchestrator/forms/tool_form.h"

namespace moestro::orchestrator {

/// Whether the vocabulary has this token.
using HasToken = std::function<bool(std::string_view)>;

/// kUnsupported says why there is none: the template writes no tools into the prompt, or has them called in a way that
/// is not known here.
Result<std::shared_ptr<const ToolForm>> find_tool_form(std::string_view chat_template, const HasToken& has_token);

/// One of each.
std::vector<std::shared_ptr<const ToolForm>> all_tool_forms();

}  // namespace moestro::orchestrator

#pragma once
// What the arguments of a request's tools may be, for calls whose text does not say it.

#include <map>
#include <string>

#include "orchestrator/grammar/tagged_value.h"

namespace moestro::orchestrator {

/// By function and argument.
using ToolArguments = std::map<std::string, std::map<std::string, grammar::TaggedValue>>;
/// `tools`: as a request has them.
ToolArguments arguments_of_tools(const grammar::SchemaJson& tools);

}  // namespace moestro::orchestrator

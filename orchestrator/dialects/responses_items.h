#pragma once
// The items of OpenAI's Responses API: checked, named, and as messages of a chat.

#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "orchestrator/api/field_reader.h"

namespace moestro::orchestrator {

/// What `input` says, as a list of items that all have "type" and "id", contents as lists of parts. Errors go to `f`,
/// members that are not known are refused, or named as `f` names unknown fields.
RequestJson read_input_items(FieldReader& f);

/// Adds what the items say to a chat's messages. Calls join the assistant's message before them.
void add_messages(RequestJson& messages, const RequestJson& items);

/// Whether it is a function_call whose arguments are whole: the text of a JSON object. Of another, an answer's end or a
/// mistake of the model has cut them.
bool is_whole_call(const RequestJson& item);

/// What a response begins with that continues another.
struct ResponseContext {
  RequestJson items = RequestJson::array();
  std::set<std::string> broken_calls;  ///< ids of calls that are not among the items
};
/// Adds the items that a response has said, except calls that broke off: a chat can only show whole arguments.
void add_said(ResponseContext& context, const RequestJson& output);
/// Refuses outputs of calls that are not in the context. `previous`: the response's id.
std::optional<ApiError> check_outputs(const RequestJson& items, const ResponseContext& context,
                                      const std::string& previous);

/// "msg_" and 24 random digits, and so on.
std::string new_item_id(const std::string& prefix);

}  // namespace moestro::orchestrator

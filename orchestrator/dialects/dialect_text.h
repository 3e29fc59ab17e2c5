#pragma once
// What the dialects share: errors by other names, events, and why an answer stopped.

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/api/api_error.h"
#include "orchestrator/api/field_reader.h"
#include "orchestrator/api/request_json.h"

namespace moestro::orchestrator {

/// A field of OpenAI's request, and what a dialect calls it.
struct FieldName {
  std::string_view openai, own;
};

/// The error with a dialect's field names, in its message too.
ApiError renamed(ApiError error, std::span<const FieldName> names);
/// What an error object of OpenAI's says. `http_status` 0: an event of a stream, whose type tells it.
ApiError error_of(int http_status, const RequestJson& body);

std::string text_of(const RequestJson& value);
/// A server-sent event; without a name only its data.
std::string event_text(std::string_view name, const RequestJson& data);

/// How a choice ended.
struct ChoiceEnd {
  std::string reason;                    ///< finish_reason; empty: it goes on
  std::optional<std::string> stop_word;  ///< the stop string that ended it, if that is said
  bool says_why = false;                 ///< whether the answer tells stop strings from other ends
};
ChoiceEnd end_of(const RequestJson& choice);

/// The tokens of an answer.
struct Usage {
  int64_t prompt = 0, cached = 0, completion = 0;
  RequestJson own = nullptr;  ///< what no other server says: its member "moestro", where there is one
};
/// Keeps `usage` as it is where there is none, as in all chunks but the last.
void read_usage(const RequestJson& answer, Usage& usage);

/// The string at `key`; "" if there is none.
std::string string_at(const RequestJson& object, const char* key);
/// "chatcmpl-0123" as "msg_0123".
std::string id_from(const RequestJson& answer, const std::string& prefix);

/// Takes the field "moestro", which each API has, over into OpenAI's body, where it is checked.
void take_own_fields(FieldReader& f, RequestJson& body);
/// Adds what `usage` has of its own to a dialect's object.
void add_own(const Usage& usage, RequestJson& to);

/// Members of an object in `field` that are neither in `known` nor null: refused, or named as `f` names unknown fields.
void settle_members(FieldReader& f, const std::string& field, const RequestJson& object,
                    const std::vector<std::string_view>& known);

}  // namespace moestro::orchestrator

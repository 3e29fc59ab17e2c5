#pragma once
// Reads and writes JSON so that no text can crash the program: of files, servers or the command line.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::cli {

/// kInvalidArgument if it is not JSON, or nested deeper than 200 (deep values overflow the stack when they are written
/// or destroyed).
Result<nlohmann::json> parse_json(std::string_view text);

/// What is wrong with text that is to be sent as JSON; empty: nothing. JSON carries UTF-8 only, and with other bytes
/// replaced it would be another text than was given. A check of options.
std::string not_utf8(const std::string& text);
/// The same of text that is read later. `what` it is.
Status check_utf8(std::string_view what, const std::string& text);

/// The text of what is printed or kept. Names of files may be any bytes: those that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value, int indent = -1);
std::string json_text(const nlohmann::ordered_json& value, int indent = -1);

/// object[key] if it exists and is a string, otherwise `otherwise`.
std::string text_or(const nlohmann::json& object, const char* key, std::string otherwise = {});
uint64_t count_or(const nlohmann::json& object, const char* key, uint64_t otherwise = 0);
double number_or(const nlohmann::json& object, const char* key, double otherwise);

/// The message of an error body in OpenAI's shape, otherwise its first 200 bytes: "prompt is too long (model demo)".
std::string error_message(std::string_view body);
/// The error for an unsuccessful answer: "the server answers 404: there is no model 'x'", and what to do about a key
/// that is missing.
Status answered_with(int status, std::string_view body);

}  // namespace moestro::cli

#pragma once
// What a line of the logs looks like: text for people, or JSON for what collects logs; and the fields that a line has
// beside its words.

#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::log {

/// After init(). format: text; or json: an object a line, with `time` (UTC), `level`, `program`, `message` and the
/// fields.
Status set_format(const std::string& format);

/// While it lives, every line of its thread has it: ` NAME=VALUE` at its end, or a member of the object. Scopes nest;
/// none for an empty value, or for one that is there already.
class Field {
 public:
  Field(const char* name, std::string_view value);
  ~Field();
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

 private:
  const bool there_;
};

/// A warning as it is written, without its end; for tests.
std::string formatted(const std::string& program, const std::string& format, std::string_view message);

}  // namespace moestro::log

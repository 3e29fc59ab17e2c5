#pragma once
// The form of log lines: text for people, or JSON for log collectors. A line may have fields in addition to its
// message.

#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::log {

/// After init(). format: "text", or "json": one object per line, with `time` (UTC), `level`, `program`, `message` and
/// the fields.
Status set_format(const std::string& format);

/// While it exists, every line of its thread has this field: ` NAME=VALUE` at its end, or a member of the object.
/// Fields nest. An empty value, or a name that is already set, adds nothing.
class Field {
 public:
  Field(const char* name, std::string_view value);
  ~Field();
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

 private:
  const bool there_;
};

/// A warning as it is written, without the line's end. For tests.
std::string formatted(const std::string& program, const std::string& format, std::string_view message);

}  // namespace moestro::log

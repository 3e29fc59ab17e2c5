#pragma once
// The exception for template errors inside this folder. chat_template.cc turns it into a Status.

#include <string>

#include "common/status.h"

namespace moestro::jinja {

struct TemplateError {
  Code code = Code::kInvalidArgument;
  std::string message;
  int line = 0;              ///< 0: unknown yet
  bool by_template = false;  ///< raise_exception: the message stands alone
};

[[noreturn]] inline void fail(std::string message, int line = 0) {
  throw TemplateError{Code::kInvalidArgument, std::move(message), line, false};
}
[[noreturn]] inline void fail_unsupported(std::string message, int line = 0) {
  throw TemplateError{Code::kUnsupported, std::move(message), line, false};
}
[[noreturn]] inline void fail_exhausted(std::string message) {
  throw TemplateError{Code::kExhausted, std::move(message), 0, false};
}
[[noreturn]] inline void fail_cancelled(std::string message) {
  throw TemplateError{Code::kCancelled, std::move(message), 0, false};
}

}  // namespace moestro::jinja

#include "common/status.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace moestro {

void check_failed(const char* file, int line, const char* condition, std::string_view message) {
  std::fprintf(stderr, "%s:%d: check failed: %s: %.*s\n", file, line, condition, static_cast<int>(message.size()),
               message.data());
  std::abort();
}

Status::Status(Code code, std::string message) {
  if (code != Code::kOk) rep_ = std::make_shared<const Rep>(Rep{code, std::move(message)});
}

const std::string& Status::message() const {
  static const std::string kEmpty;
  return rep_ ? rep_->message : kEmpty;
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) return *this;
  return Status(rep_->code, std::string(context) + ": " + rep_->message);
}

Status invalid_argument(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }
Status not_found(std::string message) { return {Code::kNotFound, std::move(message)}; }
Status unsupported(std::string message) { return {Code::kUnsupported, std::move(message)}; }
Status corrupt(std::string message) { return {Code::kCorrupt, std::move(message)}; }
Status io_error(std::string message) { return {Code::kIo, std::move(message)}; }
Status io_error(std::string what, int errno_value) {
  char buffer[128];
  return {Code::kIo, what + ": " + strerror_r(errno_value, buffer, sizeof buffer)};
}
Status exhausted(std::string message) { return {Code::kExhausted, std::move(message)}; }
Status unavailable(std::string message) { return {Code::kUnavailable, std::move(message)}; }
Status cancelled(std::string message) { return {Code::kCancelled, std::move(message)}; }
Status internal_error(std::string message) { return {Code::kInternal, std::move(message)}; }

}  // namespace moestro

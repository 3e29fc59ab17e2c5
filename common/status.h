#pragma once
// Errors that can occur in operation are returned as a Status (or a Result<T>), never thrown. A bug is a MOESTRO_CHECK
// (check.h).

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"

namespace moestro {

enum class Code {
  kOk,
  kInvalidArgument,  ///< the caller or the file is wrong: trying again will not help
  kNotFound,
  kUnsupported,  ///< well-formed, but this build cannot do it; the message names what
  kCorrupt,      ///< bytes that do not match their checksum or their format
  kIo,
  kExhausted,    ///< memory, disk, slots, queue: the message says which limit and how to raise it
  kUnavailable,  ///< a peer is not there (yet); trying again may help
  kCancelled,
  kInternal,
};

/// OK, or a code and one line for people: what failed, where, what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message);

  static Status ok() { return {}; }
  bool is_ok() const { return rep_ == nullptr; }
  explicit operator bool() const { return is_ok(); }
  Code code() const { return rep_ ? rep_->code : Code::kOk; }
  const std::string& message() const;

  /// The same error with "context: " before its message.
  Status with_context(std::string_view context) const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;
};

Status invalid_argument(std::string message);
Status not_found(std::string message);
Status unsupported(std::string message);
Status corrupt(std::string message);
Status io_error(std::string message);
/// An io_error that ends in the text of `errno_value`: "what: No space left on device".
Status io_error(std::string what, int errno_value);
Status exhausted(std::string message);
Status unavailable(std::string message);
Status cancelled(std::string message);
Status internal_error(std::string message);

/// A T, or the error that explains why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}  // NOLINT: implicit on purpose, so that `return value;` works
  Result(Status status) : status_(std::move(status)) {  // NOLINT
    MOESTRO_CHECK(!status_.is_ok(), "a Result without a value needs an error");
  }

  bool is_ok() const { return value_.has_value(); }
  explicit operator bool() const { return is_ok(); }
  const Status& status() const { return status_; }

  T& value() & { return check(), *value_; }
  const T& value() const& { return check(), *value_; }
  T&& value() && { return check(), std::move(*value_); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void check() const { MOESTRO_CHECK(value_.has_value(), status_.message()); }
  std::optional<T> value_;
  Status status_;
};

}  // namespace moestro

#define MOESTRO_CONCAT_INNER(a, b) a##b
#define MOESTRO_CONCAT(a, b) MOESTRO_CONCAT_INNER(a, b)

/// Returns from the function if `expr` (a Status) is an error.
#define MOESTRO_RETURN_IF_ERROR(expr)                          \
  do {                                                         \
    if (::moestro::Status status_ = (expr); !status_.is_ok()) return status_; \
  } while (false)

/// `MOESTRO_ASSIGN_OR_RETURN(auto x, f());` declares x from a Result, or returns its error.
#define MOESTRO_ASSIGN_OR_RETURN(decl, expr)                                     \
  auto MOESTRO_CONCAT(result_, __LINE__) = (expr);                               \
  if (!MOESTRO_CONCAT(result_, __LINE__).is_ok()) return MOESTRO_CONCAT(result_, __LINE__).status(); \
  decl = std::move(MOESTRO_CONCAT(result_, __LINE__)).value()

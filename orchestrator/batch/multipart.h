#pragma once
// Reads multipart/form-data (RFC 7578) as it arrives, in pieces of any size. No I/O: results go to the callbacks.

#include <functional>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::orchestrator {

class MultipartReader {
 public:
  struct Part {
    std::string name, filename;
  };
  struct Callbacks {
    std::function<Status(const Part&)> begin;         ///< a part begins
    std::function<Status(std::string_view)> content;  ///< bytes of it
  };

  /// `content_type`: of the whole body, "multipart/form-data; boundary=...".
  static Result<MultipartReader> open(const std::string& content_type, Callbacks callbacks);

  /// Returns an error of a callback or of the form. Do not call it again after an error.
  Status feed(std::string_view piece);
  /// Whether the last boundary has been read.
  bool complete() const { return state_ == State::kDone; }

 private:
  enum class State { kPreamble, kBoundary, kHeaders, kContent, kDone };
  MultipartReader(std::string delimiter, Callbacks callbacks)
      : delimiter_(std::move(delimiter)), callbacks_(std::move(callbacks)) {}
  Result<bool> advance();
  Result<bool> skip_to_boundary(bool is_content);
  Result<bool> read_boundary_end();
  Result<bool> read_headers();

  std::string delimiter_;  ///< "\r\n--BOUNDARY"
  Callbacks callbacks_;
  State state_ = State::kPreamble;
  std::string held_ = "\r\n";  ///< not searched to its end; the first boundary needs no line break before it
};

}  // namespace moestro::orchestrator

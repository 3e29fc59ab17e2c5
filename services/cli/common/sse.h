#pragma once
// Server-sent events: converts bytes in pieces of any size into the `data` of complete events.

#include <functional>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::cli {

class SseParser {
 public:
  static constexpr size_t kEventBytesMax = 16 << 20;
  using OnData = std::function<Status(std::string_view data)>;

  explicit SseParser(OnData on_data) : on_data_(std::move(on_data)) {}
  /// Calls on_data for every event that ends in `bytes`; its first error is returned and ends the stream.
  Status feed(std::string_view bytes);

 private:
  Status take_line(std::string_view line);
  OnData on_data_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace moestro::cli

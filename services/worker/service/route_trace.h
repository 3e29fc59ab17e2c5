#pragma once
// The routing trace (`--trace FILE`): JSON Lines, one line per token of a request with the experts of every MoE layer.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "common/status.h"
#include "services/worker/engine/engine.h"

namespace moestro::worker {

class RouteTrace {
 public:
  /// Makes the file and writes its first line. A name that ends in .zst is refused: this writer does not compress.
  static Result<std::unique_ptr<RouteTrace>> create(const std::filesystem::path& path, const std::string& model,
                                                    const model::ModelSpec& spec);
  ~RouteTrace();
  RouteTrace(const RouteTrace&) = delete;
  RouteTrace& operator=(const RouteTrace&) = delete;

  /// Appends the tokens and hands the lines to the system: a killed worker leaves whole lines.
  void write(const engine::RoutedTokens& tokens);

 private:
  explicit RouteTrace(int fd) : fd_(fd) {}
  void append_token(const engine::RoutedTokens& tokens, int64_t index);
  bool write_out();

  int fd_;
  bool failed_ = false;
  std::string buffer_;
};

}  // namespace moestro::worker

#pragma once
// The routing trace (`--trace FILE`): JSON Lines, one line per token of a request with the experts of every MoE layer.
// A step may be ahead of what the orchestrator knows (a sequence is sent back or cancelled), so lines wait until the
// sequence continues from them or is released. If an answer may end in its text, which only the orchestrator sees, they
// wait until it is released. Each position is written once.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/status.h"
#include "services/worker/engine/engine.h"

namespace moestro::worker {

class RouteTrace {
 public:
  /// Creates the file and writes its first line. A name that ends in .zst is refused, because this writer does not
  /// compress.
  static Result<std::unique_ptr<RouteTrace>> create(const std::filesystem::path& path, const std::string& model,
                                                    const model::ModelSpec& spec);
  ~RouteTrace();
  RouteTrace(const RouteTrace&) = delete;
  RouteTrace& operator=(const RouteTrace&) = delete;

  /// Appends the tokens. Final lines are written at once, so that a killed worker leaves complete lines.
  void write(const engine::RoutedTokens& tokens);
  /// Writes the waiting lines of this sequence whose positions count.
  void release(const ReleasedSequence& released);

 private:
  explicit RouteTrace(int fd) : fd_(fd) {}
  struct Line {
    int64_t position = 0;
    std::string text;
  };
  void append_token(const engine::RoutedTokens& tokens, int64_t index);
  void stand(std::vector<Line>& lines, int64_t length);
  void flush();
  bool write_out();

  int fd_;
  bool failed_ = false;
  std::string buffer_;
  std::unordered_map<SequenceId, std::vector<Line>> waiting_;
};

}  // namespace moestro::worker

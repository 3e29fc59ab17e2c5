#pragma once
// The lines of a batch: {"custom_id": "...", "method": "POST", "url": "/v1/...", "body": {...}}.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/status.h"

namespace moestro::cli {

inline constexpr size_t kBatchLineBytesMax = 64 << 20;

struct BatchLine {
  uint64_t number = 0;  ///< from 1, as an editor counts
  std::string custom_id;
  std::string path;  ///< "/v1/completions"
  std::string body;  ///< JSON
};

/// kInvalidArgument says what is wrong with the line, without its number.
Result<BatchLine> parse_batch_line(std::string_view text, uint64_t number);

/// Reads a file line by line; blank lines are passed over.
class BatchInput {
 public:
  static Result<BatchInput> open(const std::filesystem::path& path);
  /// The next line; nothing at the end. Errors name file and line.
  Result<std::optional<BatchLine>> next();

 private:
  explicit BatchInput(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  std::ifstream in_;
  uint64_t number_ = 0;
};

/// The endpoint that the first line with a `url` asks for; empty: no line of the first thousand has one.
std::string endpoint_of_batch(const std::filesystem::path& path);

/// Reads the whole file once: custom_id -> line number. Refused: a bad line, a custom_id that stands twice, a
/// file without lines. The error is the first bad line's and counts the others.
Result<std::unordered_map<std::string, uint64_t>> survey_batch(const std::filesystem::path& path);

}  // namespace moestro::cli

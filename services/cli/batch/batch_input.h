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
Result<BatchLine> parse_batch_line(const std::string& text, uint64_t number);

/// Reads a file line by line and skips blank lines.
class BatchInput {
 public:
  static Result<BatchInput> open(const std::filesystem::path& path);
  /// The next line; nullopt at the end. Errors name file and line.
  Result<std::optional<BatchLine>> next();

 private:
  explicit BatchInput(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
  std::ifstream in_;
  uint64_t number_ = 0;
};

/// The endpoint of the first line with a `url`; empty: none of the first thousand lines has one.
std::string endpoint_of_batch(const std::filesystem::path& path);

/// Reads the whole file once: custom_id -> line number. Refuses a bad line, a repeated custom_id, and a file without
/// lines. The error is that of the first bad line and counts the others.
Result<std::unordered_map<std::string, uint64_t>> survey_batch(const std::filesystem::path& path);

}  // namespace moestro::cli

#pragma once
// The file of results: appended, synced, and read again when a run is resumed.

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>

#include "common/status.h"
#include "services/cli/common/http_client.h"

namespace moestro::cli {

/// One line of OUT without its line break, and its figures for the summary.
struct BatchResult {
  std::string line;
  bool failed = false;
  uint64_t prompt_tokens = 0, completion_tokens = 0;
};

/// {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}. An answer that is
/// not JSON becomes an error.
BatchResult make_batch_result(uint64_t line_number, const std::string& custom_id, const HttpReply& reply);

class BatchResults {
 public:
  /// Creates or opens the file and locks it against a second run. Reads the existing results. A last line without a
  /// line break was torn when an earlier run ended, and is cut off. kCorrupt: another line is not a result, so the file
  /// is something else and is not changed.
  static Result<BatchResults> open(const std::filesystem::path& path);
  BatchResults(BatchResults&& other) noexcept;
  BatchResults& operator=(BatchResults&&) = delete;
  ~BatchResults();

  /// custom_id -> whether it failed.
  const std::unordered_map<std::string, bool>& done() const { return done_; }
  bool was_torn() const { return was_torn_; }
  /// The result is on disk when it returns.
  Status append(const BatchResult& result);

 private:
  explicit BatchResults(std::filesystem::path path) : path_(std::move(path)) {}
  Status read_back();
  std::filesystem::path path_;
  int fd_ = -1;
  bool was_torn_ = false;
  std::unordered_map<std::string, bool> done_;
};

}  // namespace moestro::cli

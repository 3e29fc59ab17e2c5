#pragma once
// What is kept of files, batches and responses. Times are Unix seconds; 0: not (yet).

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::orchestrator {

/// How long a client may have a file kept.
inline constexpr int64_t kFileSecondsLeast = 3600, kFileSecondsMost = 30 * 24 * 3600;

/// A file that was uploaded, or that a batch has written. Its bytes are stored next to the state, by its id.
struct FileRecord {
  std::string id;  ///< "file-" and 24 hexadecimal digits
  std::string name;     ///< the client's name for it; never used as a path
  std::string purpose;  ///< "batch" or "batch_output"
  uint64_t bytes = 0;
  int64_t created_at = 0, expires_at = 0;
  std::string checksum = {};  ///< of its bytes (batch/file_sum.h); empty: from before checksums existed
  std::string owner = {};  ///< the project that it belongs to; empty: none
};

enum class BatchStatus : uint8_t {
  kValidating,
  kFailed,
  kInProgress,
  kFinalizing,
  kCompleted,
  kExpired,
  kCancelling,
  kCancelled
};
inline constexpr size_t kBatchStatuses = 8;
std::string_view batch_status_name(BatchStatus status);
/// Whether a batch of this status has ended.
bool is_over(BatchStatus status);

struct BatchRecord {
  std::string id;  ///< "batch_" and 24 hexadecimal digits
  BatchStatus status = BatchStatus::kValidating;
  BatchStatus outcome = BatchStatus::kCompleted;  ///< its status when it has ended
  std::string endpoint, model, input_file, completion_window, metadata;  ///< metadata: a JSON object, or empty
  std::string output_file, error_file;  ///< ids; the files exist when it has ended
  int64_t created_at = 0, in_progress_at = 0, expires_at = 0, finalizing_at = 0, completed_at = 0, failed_at = 0,
          expired_at = 0, cancelling_at = 0, cancelled_at = 0;
  int64_t output_seconds = 0;  ///< its files expire this long after their creation; 0: never
  uint64_t total = 0, completed = 0, failed = 0;  ///< lines
  uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  std::string error_code = {}, error_message = {};  ///< why it failed as a whole
  std::string owner = {};                           ///< the project that it and its files belong to; empty: none
};

/// The result of one line of a batch's input.
struct LineResult {
  uint64_t line = 0;  ///< from 1, as an editor counts
  bool good = false;  ///< it goes to the output file; else to the error file
  std::string text;   ///< a line of that file, without its break
  uint64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
};

/// Lines by their results.
struct LineCounts {
  uint64_t good = 0, bad = 0;
};

/// A response of /v1/responses, with the input that it answers.
struct ResponseRecord {
  std::string id;     ///< "resp_" and 24 hexadecimal digits
  std::string owner;  ///< the project it belongs to; empty: nobody's
  int64_t created_at = 0;
  std::string text;   ///< JSON that the state does not look into
};

/// What is kept of them.
struct ResponseLimits {
  int64_t created_after = 0;  ///< older ones are forgotten
  uint64_t bytes_max = 0;     ///< of all texts together: the oldest are forgotten
};

/// kExhausted if the response alone has more bytes than are kept.
Status check_size(const ResponseRecord& response, const ResponseLimits& limits);

}  // namespace moestro::orchestrator

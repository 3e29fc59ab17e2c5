#pragma once
// The result of one request of a load. Times are in seconds after the beginning of the load.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace moestro::cli {

struct RequestRecord {
  enum class Ending : uint8_t { kUnsent, kUnderWay, kDone, kRefused, kFailed };  ///< refused: 429
  double due_s = 0, sent_s = 0;
  double first_s = 0, last_s = 0;  ///< arrival of the first and the last piece of text
  std::vector<float> gaps_s =
      {};  ///< gaps between consecutive pieces; a piece is a token, or what the server sends at once
  int32_t prompt_tokens = 0, output_tokens = 0;  ///< as requested
  int32_t got_tokens = 0;          ///< from the server's usage, or the number of pieces
  Ending ending = Ending::kUnsent;
  bool retry_after = false;        ///< a refusal had Retry-After

  double ttft_s() const { return first_s - sent_s; }
  double e2e_s() const { return last_s - sent_s; }
  /// Time per output token after the first; 0 if there is none.
  double tpot_s() const { return got_tokens > 1 ? (last_s - first_s) / (got_tokens - 1) : 0; }
};

/// Why requests failed or were refused: "HTTP 429", "cannot connect", "the stream broke off", ... With their number,
/// and the message of one of them.
struct FailureKind {
  int64_t count = 0;
  std::string example;
};

struct LoadRun {
  std::vector<RequestRecord> requests;
  std::map<std::string, FailureKind> failures;
  double seconds = 0;        ///< from the begin to the last answer's end
  double busy_share = 0;     ///< share of a core that the generator took
  int64_t in_flight_max = 0;
  int64_t idle_open = 0, idle_lost = 0;  ///< idle connections that were opened, and that were lost
  bool interrupted = false;
};

}  // namespace moestro::cli

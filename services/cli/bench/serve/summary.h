#pragma once
// The figures of a load, as defined by vLLM's benchmark_serving: time to first token from sending to the first piece of
// text; time per output token without the first; percentiles interpolated between neighbours.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "services/cli/bench/serve/request_record.h"

namespace moestro::cli {

struct Distribution {
  size_t count = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Distribution distribution(std::vector<double> values);

/// The bounds of a good request; nullopt: no bound.
struct GoodputBounds {
  std::optional<double> ttft_s = {}, tpot_s = {}, e2e_s = {};
  bool any() const { return ttft_s || tpot_s || e2e_s; }
  bool kept(const RequestRecord& r) const;
};
/// "ttft:500ms,tpot:50ms,e2e:2s" ("e2el" is "e2e").
Result<GoodputBounds> parse_goodput(std::string_view text);

struct LoadSummary {
  int64_t sent = 0, done = 0, refused = 0, failed = 0, unfinished = 0, unsent = 0;
  int64_t other_length = 0;          ///< answers whose number of tokens is not the requested one
  int64_t refused_without_retry_after = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;  ///< of finished requests
  double seconds = 0;
  double offered_rate = 0;           ///< requests per second as due; 0: all at once
  double requests_per_s = 0, prompt_tokens_per_s = 0, output_tokens_per_s = 0;
  double steady_tokens_per_s =
      0;  ///< output tokens per second of all requests between a fifth of the sending time and its end; 0: too short
  double good_per_s = 0, good_share = 0;
  Distribution ttft_s = {}, tpot_s = {}, itl_s = {}, e2e_s = {}, behind_s = {};
};
LoadSummary summarise(const LoadRun& run, const GoodputBounds& bounds);

}  // namespace moestro::cli

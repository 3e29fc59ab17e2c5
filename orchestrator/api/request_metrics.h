#pragma once
// Metrics of the request plane in Prometheus' text format; names begin with moestro_.

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "orchestrator/control/control_plane.h"

namespace moestro::orchestrator {

class RequestMetrics {
 public:
  explicit RequestMetrics(const std::string& model);
  ~RequestMetrics();

  void request_started();
  /// result: "ok", "error", "cancelled", "refused".
  void request_ended(const std::string& result, bool was_started);
  void prompt_tokens(size_t tokens);
  void first_token(std::chrono::duration<double> after);
  void next_tokens(std::chrono::duration<double> since_last, size_t tokens);

  int64_t running() const;
  uint64_t total_prompt_tokens() const;
  /// Requests that have ended, by result; and, each as `{"bounds": [...], "counts": [...], "sum", "count"}`, the times
  /// to the first token and between tokens: counts of each bucket alone, one more than there are bounds.
  nlohmann::json results() const;
  nlohmann::json latencies() const;
  /// The text of /metrics: what was counted here, and the control thread's figures.
  std::string text(const ControlSnapshot& control) const;

 private:
  struct Families;
  std::unique_ptr<Families> f_;
};

}  // namespace moestro::orchestrator

#pragma once
// One line of a batch: its request and its result. Pure functions.

#include <cstdint>
#include <string>
#include <variant>

#include "orchestrator/state/records.h"

namespace moestro::orchestrator {

struct BatchLine {
  std::string custom_id;
  std::string body;        ///< JSON, as it would be posted to the batch's endpoint
  uint64_t sequences = 1;  ///< sequences that the scheduler gets
};

/// Why a line is not run.
struct LineProblem {
  std::string custom_id;  ///< empty: the line has none
  std::string code, message;
};

inline constexpr size_t kCustomIdBytesMax = 512;

/// Checks what can be checked without running it. The endpoint checks the rest. `model`: empty: any.
std::variant<BatchLine, LineProblem> read_batch_line(const std::string& text, const std::string& endpoint,
                                                     const std::string& model,
                                                     const std::vector<std::string>& aliases = {});

/// The place of a line: its batch and its number.
struct LinePlace {
  const std::string& batch;
  uint64_t line;
};
/// The result of a line that was answered with `status` and `body`. Good: 2xx.
LineResult answered_line(const LinePlace& place, const std::string& custom_id, int status, const std::string& body);
/// The result of a line that was not run.
LineResult refused_line(const LinePlace& place, const LineProblem& problem);

}  // namespace moestro::orchestrator

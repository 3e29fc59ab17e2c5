#pragma once
// The requests of a load, and the parts of their stream events that a load counts.

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace moestro::cli {

struct CompletionFields {
  std::string model = {};
  int64_t max_tokens = 1;
  double temperature = 1;
  uint64_t seed = 0;
  bool stream = true;         ///< with a usage at the end
};
/// `prompt`: token ids between commas. The end token is ignored, so that the answer has max_tokens tokens.
std::string completion_body(const CompletionFields& fields, const std::string& prompt);

struct StreamChunk {
  bool piece = false;         ///< it has text, or a token without text
  bool ended = false;         ///< it has the reason why the answer ends
  int64_t usage_tokens = -1;  ///< completion_tokens, if it has a usage
};

/// An event that carries an error becomes kUnavailable with its message; one that is not JSON is kCorrupt.
Result<StreamChunk> read_stream_chunk(std::string_view data);

}  // namespace moestro::cli

#pragma once
// How a token is drawn, from the request's fields to the engine's sampler.

#include <cstdint>
#include <vector>

#include "common/ids.h"

namespace moestro {

/// Plain values, copied with each plan. The lists that change logits besides (LogitBias, TokenMask) belong to the
/// sequence: the scheduler shares one among the choices of a request and the steps of an answer, a worker owns what it
/// has read.
struct Sampling {
  float temperature = 0;  ///< 0: greedy, the lowest id among equals
  int32_t top_k = 0;      ///< 0: all
  float top_p = 1, min_p = 0;
  uint64_t seed = 0;
  uint32_t choice = 0;    ///< index among the n choices
  int32_t logprobs = -1;  ///< -1: none; n: the sampled token's and the n best
  float repetition_penalty = 1;                       ///< of tokens of the prompt and of the answer; 1: none
  float presence_penalty = 0, frequency_penalty = 0;  ///< of tokens of the answer; 0: none

  bool penalises() const { return repetition_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0; }
};

/// Added to a token's logit.
struct LogitBias {
  TokenId id = 0;
  float bias = 0;
  friend bool operator==(const LogitBias&, const LogitBias&) = default;
};

/// The tokens that may be sampled, one bit each; the lowest bit of the first word is token 0.
using TokenMask = std::vector<uint32_t>;

}  // namespace moestro

#pragma once
// What a sequence may say next, for constrained decoding. Objects without I/O; the control thread alone uses one after it was submitted.

#include <cstdint>
#include <memory>
#include <vector>

#include "common/ids.h"
#include "common/status.h"

namespace moestro::orchestrator {

/// One bit a token, the lowest bit of the first word is token 0.
using TokenMask = std::vector<uint32_t>;

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  /// The tokens that may come next, those that end the text included where it may end. kExhausted or kInternal if that cannot be said.
  virtual Result<std::shared_ptr<const TokenMask>> allowed() = 0;
  /// The token that was sampled. False if it was not allowed.
  virtual bool accept(TokenId token) = 0;
  /// Nothing can follow: the text is complete.
  virtual bool complete() const = 0;
};

}  // namespace moestro::orchestrator

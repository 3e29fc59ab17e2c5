#pragma once
// What a sequence may say next: a grammar (constrained decoding), or a request's own rules (token_rules.h). Objects
// without I/O; the control thread alone uses one after it was submitted.

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "common/ids.h"
#include "common/sampling.h"
#include "common/status.h"

namespace moestro::orchestrator {

class TokenConstraint {
 public:
  using Mask = std::shared_ptr<const TokenMask>;

  virtual ~TokenConstraint() = default;
  /// The tokens that may come next, those that end the text included where it may end; null: any. `work` is how much
  /// may be done for that, in units of about 10 ns, and then what is left of it; nothing: it was not enough, and the
  /// next call goes on from there. kUnsupported or kInternal if it cannot be said, now or later.
  virtual Result<std::optional<Mask>> allowed_within(int64_t& work) = 0;
  /// The tokens that may come after the next one, where that hangs on no token, only on how many there are (null: any);
  /// nothing if it does. Such a sequence is planned a step ahead.
  virtual std::optional<Mask> allowed_ahead() const { return std::nullopt; }
  /// However much work that is.
  Result<Mask> allowed() {
    int64_t work = std::numeric_limits<int64_t>::max();
    const auto mask = allowed_within(work);
    if (!mask.is_ok()) return mask.status();
    return mask->value();
  }
  /// Takes the sampled token. False if it was not allowed.
  virtual bool accept(TokenId token) = 0;
  /// True if the text is complete and nothing can follow.
  virtual bool complete() const = 0;
};

}  // namespace moestro::orchestrator

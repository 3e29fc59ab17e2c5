#pragma once
// Which experts the answer to a prompt will use, before anything of the prompt is computed: those that the answers to
// past prompts with the same tokens used.
//
// A prompt is the set of its last tokens. Two prompts are similar by the tokens that they share, each weighed by how
// few of the past prompts have it (inverse document frequency). docs/perf/activation.md compares this with other
// signals. A collection of fixed size: a new prompt replaces the oldest.
//
// One thread owns it. No I/O, no clock.

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "common/activation/activation_matrix.h"
#include "common/activation/eamc_view.h"
#include "common/activation/expert_union.h"
#include "common/ids.h"

namespace moestro::activation {

/// A prompt as a set: its last tokens, each once, ascending.
using PromptTokens = std::vector<TokenId>;
PromptTokens prompt_tokens(std::span<const TokenId> prompt);

class PromptExperts {
 public:
  static constexpr size_t kLeastKnown = 8;   ///< past prompts, before anything is said of a new one
  static constexpr size_t kNearest = 8;      ///< past prompts that count for a new one
  static constexpr size_t kTokensMax = 1024; ///< of a prompt

  explicit PromptExperts(size_t capacity) : capacity_(capacity) {}

  /// Forgets everything: another model, or other weights.
  void begin(const EamcShape& shape);
  /// A request has ended; `answer` counts what its answer used. Ignored if the answer is empty or of another shape.
  void add(const PromptTokens& prompt, const ActivationMatrix& answer);

  /// Null: nothing is known of prompts like this one.
  std::shared_ptr<const ExpertShares> likely(const PromptTokens& prompt) const;
  size_t size() const { return entries_.size(); }
  /// Past prompts since begin(), replaced ones too. What likely() says may have changed when this has.
  uint64_t added() const { return added_; }

 private:
  struct Entry {
    uint64_t number = 0;
    PromptTokens tokens;
    std::vector<uint8_t> cells;  ///< as of Eamc
  };
  void drop_oldest();

  const size_t capacity_;
  EamcShape shape_;
  std::deque<Entry> entries_;  ///< oldest first; numbers without gaps
  std::unordered_map<TokenId, std::deque<uint64_t>> having_;  ///< numbers of the entries with this token, ascending
  uint64_t added_ = 0;
};

}  // namespace moestro::activation

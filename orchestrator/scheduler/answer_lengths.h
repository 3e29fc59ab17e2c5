#pragma once
// How long answers of batches will be, from how long recent ones were. A limit (max_tokens) says little: many answers
// end long before it.

#include <cstdint>

namespace moestro::orchestrator {

class AnswerLengths {
 public:
  void ended(int64_t tokens);
  /// Tokens that an answer with `sampled` so far, and `most` allowed, is expected to end with: usual ones or a little
  /// longer. Before any has ended: an ordinary length.
  int64_t expected(int64_t sampled, int64_t most) const;

 private:
  double mean_ = 0, deviation_ = 0;
  bool any_ = false;
};

}  // namespace moestro::orchestrator

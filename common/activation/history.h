#pragma once
// What past requests of one model have used. Prompts and answers are kept apart, because a prompt's tokens use many
// more experts at once.

#include <span>
#include <vector>

#include "common/activation/eamc.h"
#include "common/shm/mapped_file.h"

namespace moestro::activation {

/// A request's counts while it runs.
struct RequestCounts {
  ActivationMatrix prompt, answer;
  explicit RequestCounts(const EamcShape& shape)
      : prompt(shape.layers, shape.experts), answer(shape.layers, shape.experts) {}
};

class ActivationHistory {
 public:
  /// Allocates its own memory.
  ActivationHistory(const EamcShape& shape, int32_t capacity);
  /// Uses memory that other processes of the host can map for reading (HistoryMapping). It is fully backed from the
  /// start, and no other process can shorten or write it. `segment`: a different number each time. kInvalidArgument: a
  /// size that readers refuse. kExhausted and others: the memory cannot be allocated.
  static Result<ActivationHistory> shared(const EamcShape& shape, int32_t capacity, uint64_t pack_identity,
                                          uint64_t segment);

  Eamc prompts, answers;

  const HistoryView& view() const { return view_; }
  /// The memory that others can map; null: it is this process's own.
  const shm::MappedFile* memory() const { return memory_ ? &memory_ : nullptr; }

  struct Changes {
    std::optional<Eamc::Change> prompt, answer;
  };
  /// A request has ended. A request with too few tokens of a kind (prompt or answer) adds no matrix of that kind,
  /// because it says little about its domain.
  Changes add(const RequestCounts& request);

 private:
  ActivationHistory(Eamc of_prompts, Eamc of_answers, shm::MappedFile memory);
  shm::MappedFile memory_;
  HistoryView view_;
};

/// A history as bytes, for the state store. A checkpoint that is incomplete, damaged or of another pack is rejected
/// when it is read.
///
///     0  "MSTEAMC1"        8  version u32    12  layers u32    16  experts u32    20  top_k u32
///     24 pack identity u64    32  prompts u32    36  answers u32
///     40 XXH3-64 of all but these 8 bytes
///     48 cells u8 [prompts][layers][experts], then [answers][layers][experts]
///
/// Numbers are little-endian.
std::vector<std::byte> write_checkpoint(const ActivationHistory& history, uint64_t pack_identity);

/// Fills `history`, whose shape is the model's. If a checkpoint has more entries than the capacity, the first ones are
/// kept. Errors leave it empty: kCorrupt (damaged or truncated), kUnsupported (a later version), kInvalidArgument (of
/// another pack or shape).
Status read_checkpoint(std::span<const std::byte> bytes, uint64_t pack_identity, ActivationHistory& history);

}  // namespace moestro::activation

// The recurrence of the gated delta rule. A block takes 32 columns of a head's state through the rows of a sequence, in
// registers: columns depend on q and k, but not on each other. Both sums over a state's rows are of the state before a
// row, so a row has one round of exchanges:
//   held = k S, read = q S;  d = rate (v - decay held);  out = decay read + (q k) d;  S = decay S + k d
//
// Sequences of one token have few threads with much of a state each, for all that their time is is reading and writing
// it. Prompts have many threads with little each, for theirs is the wait between rows.

#include "kernels/cuda/async_copy.h"
#include "kernels/cuda/delta.h"
#include "kernels/cuda/delta_tails.h"
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/row_norm.h"

namespace moestro::kernels::cuda {
namespace {

constexpr int kSlots = kWarp / kDeltaGroups;  ///< lanes of a warp with the same rows

/// How a kernel divides a strip. kColumns: of a lane; kWhole: its four are loaded at once. kTokens: in shared memory at
/// a time.
template <typename RowsOfLane, int kColumnsOfLane, int kTokensOfStage, bool kWholeFours>
struct StripForm {
  using Rows = RowsOfLane;
  static constexpr int kRows = Rows::kRows, kColumns = kColumnsOfLane, kTokens = kTokensOfStage;
  static constexpr bool kWhole = kWholeFours;
  static constexpr int kThreads = kDeltaStrip / (kSlots * kColumns) * kWarp;
  static constexpr int kStages = kTokens == 1 ? 1 : 2;
  /// Blocks that are to fit one multiprocessor, by their registers.
  static constexpr int kBlocks = kColumns == 4 ? 6 : 2;
  /// Of a token in shared memory. Rows of the lanes that read at once begin in different banks.
  static constexpr int kLane = kRows + 4, kKey = kDeltaGroups * kLane;
  static constexpr int kToken = 2 * kKey + kDeltaStrip + DeltaRecord<Rows>::kGates;
  static constexpr uint64_t kShared = uint64_t{kStages} * kTokens * kToken * sizeof(float);
};
template <typename Rows, bool kWhole>
using SingleForm = StripForm<Rows, 4, 1, kWhole>;
template <typename Rows>
using PromptForm = StripForm<Rows, 1, 8, false>;

/// The part of a head's state that a lane has, and where it lies in a slot.
template <typename Form>
struct StripState {
  const MoestroCudaDelta& a;
  int64_t first;  ///< of its first row and column in a slot
  int rows, columns;
  float s[Form::kRows][Form::kColumns];

  __device__ StripState(const MoestroCudaDelta& delta, int64_t head, int64_t column) : a(delta) {
    const int64_t row = lane_id() % kDeltaGroups * Form::kRows;
    first = delta_tail_floats(a) + (head * a.key_dim + row) * a.value_dim + column;
    rows = static_cast<int>(at_least<int64_t>(0, at_most<int64_t>(Form::kRows, a.key_dim - row)));
    columns = static_cast<int>(at_least<int64_t>(0, at_most<int64_t>(Form::kColumns, a.value_dim - column)));
  }
  __device__ void load(const float* slot) {
    MOESTRO_UNROLL
    for (int i = 0; i < Form::kRows; ++i) {
      MOESTRO_UNROLL
      for (int c = 0; c < Form::kColumns; ++c) s[i][c] = 0.0f;
      if (!slot || i >= rows || columns == 0) continue;
      const float* from = slot + first + i * a.value_dim;
      if constexpr (Form::kWhole) {
        load_four(from, s[i]);
      } else {
        MOESTRO_UNROLL
        for (int c = 0; c < Form::kColumns; ++c)
          if (c < columns) s[i][c] = from[c];
      }
    }
  }
  __device__ void store(float* slot) const {
    MOESTRO_UNROLL
    for (int i = 0; i < Form::kRows; ++i) {
      if (i >= rows || columns == 0) continue;
      float* to = slot + first + i * a.value_dim;
      if constexpr (Form::kWhole) {
        Bytes16 four;
        MOESTRO_UNROLL
        for (int c = 0; c < 4; ++c) four.words[c] = float_to_bits(s[i][c]);
        store_as(to, four);
      } else {
        MOESTRO_UNROLL
        for (int c = 0; c < Form::kColumns; ++c)
          if (c < columns) to[c] = s[i][c];
      }
    }
  }
};

/// Begins to copy what a block needs of prepared rows [row, row + tokens) to shared memory.
template <typename Form>
__device__ void begin_stage(const MoestroCudaDelta& a, int64_t row, int tokens, int head, int strip, float* stage) {
  using Rows = typename Form::Rows;
  constexpr int kOfKey = Rows::kKey / 4, kOfStrip = kDeltaStrip / 4, kOfToken = 2 * kOfKey + kOfStrip + 1;
  constexpr int kOfLane = Form::kRows / 4;
  const DeltaRecord<Rows> record{a};
  const int key_head = delta_key_head(a, head);
  for (int i = static_cast<int>(threadIdx.x); i < tokens * kOfToken; i += Form::kThreads) {
    const int token = i / kOfToken, part = i % kOfToken;
    float* const to = stage + token * Form::kToken;
    if (part < 2 * kOfKey) {  // k follows q
      copy_async16(to + part / kOfLane * Form::kLane + part % kOfLane * 4, record.q(row + token, key_head) + part * 4);
    } else if (part < kOfToken - 1) {
      const int at = (part - 2 * kOfKey) * 4;
      copy_async16(to + 2 * Form::kKey + at, record.v(row + token, head) + strip * kDeltaStrip + at);
    } else {
      copy_async16(to + 2 * Form::kKey + kDeltaStrip, record.gates(row + token, head));
    }
  }
  commit_copies();
}

/// Takes a lane's state through the token at `token` in shared memory; `column` is the lane's first of the strip.
/// Afterwards out has what the token reads.
template <typename Form>
__device__ void take_token(const float* token, int column, StripState<Form>& state, float (&out)[Form::kColumns]) {
  constexpr int kColumns = Form::kColumns;
  using Record = DeltaRecord<typename Form::Rows>;
  const float* const q = token + lane_id() % kDeltaGroups * Form::kLane;
  const float* const k = q + Form::kKey;
  const float* const v = token + 2 * Form::kKey + column;
  const float* const gates = token + 2 * Form::kKey + kDeltaStrip;
  float keys[Form::kRows];
  float held[2][kColumns], read[2][kColumns];  // of rows with even and odd numbers: half as long a chain
  MOESTRO_UNROLL
  for (int c = 0; c < kColumns; ++c) held[0][c] = held[1][c] = read[0][c] = read[1][c] = 0.0f;
  MOESTRO_UNROLL
  for (int first = 0; first < Form::kRows; first += 4) {
    float queries[4], four[4];
    load_four(q + first, queries);
    load_four(k + first, four);
    MOESTRO_UNROLL
    for (int i = 0; i < 4; ++i) {
      keys[first + i] = four[i];
      MOESTRO_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const float s = state.s[first + i][c];
        held[i % 2][c] = multiply_add(four[i], s, held[i % 2][c]);
        read[i % 2][c] = multiply_add(queries[i], s, read[i % 2][c]);
      }
    }
  }
  const float decay = gates[Record::kDecay], rate = gates[Record::kRate], qk = gates[Record::kQk];
  MOESTRO_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    const float of_k = warp_sum<kDeltaGroups>(held[0][c] + held[1][c]),
                of_q = warp_sum<kDeltaGroups>(read[0][c] + read[1][c]);
    const float d = rate * multiply_add(-decay, of_k, v[c]);
    out[c] = multiply_add(qk, d, decay * of_q);
    MOESTRO_UNROLL
    for (int i = 0; i < Form::kRows; ++i) state.s[i][c] = multiply_add(keys[i], d, decay * state.s[i][c]);
  }
}

/// Blocks: strips of all heads, times sequences from number `first_sequence` on.
template <typename Form>
__global__ void __launch_bounds__(Form::kThreads, Form::kBlocks)
    delta_kernel(MoestroCudaDelta a, int32_t first_sequence) {
  auto* const shared = reinterpret_cast<float*>(shared_memory());
  const auto block = static_cast<int>(blockIdx.x), strips = static_cast<int>(divided_up(a.value_dim, kDeltaStrip));
  const int head = block / strips, strip = block % strips;
  const int column = (warp_id() * kSlots + lane_id() / kDeltaGroups) * Form::kColumns;
  after_predecessors();
  let_next_begin();
  const MoestroCudaDeltaSequence s = a.sequences[first_sequence + static_cast<int32_t>(blockIdx.y)];
  begin_stage<Form>(a, s.first_row, at_most(s.tokens, Form::kTokens), head, strip, shared);

  const float* const before = delta_before(a, s);
  const bool keeps = a.kept && !a.again && s.kept >= 0;
  StripState<Form> state(a, head, strip * kDeltaStrip + column);
  state.load(before);
  if (keeps) state.store(a.kept + s.kept * delta_slot_floats(a));

  const MoestroCudaDeltaWrite* write = a.writes + s.first_write;
  const MoestroCudaDeltaWrite* const writes_end = write + s.writes;
  for (int32_t begin = 0, stage = 0; begin < s.tokens; begin += Form::kTokens, stage = Form::kStages - 1 - stage) {
    const int32_t next = begin + Form::kTokens;
    if constexpr (Form::kStages > 1) {
      begin_stage<Form>(a, s.first_row + next, at_least(0, at_most(s.tokens - next, Form::kTokens)), head, strip,
                        shared + (1 - stage) * Form::kTokens * Form::kToken);
    }
    wait_copies<Form::kStages - 1>();
    __syncthreads();
    const float* token = shared + stage * Form::kTokens * Form::kToken;
    for (int32_t t = begin; t < at_most(s.tokens, next); ++t, token += Form::kToken) {
      float out[Form::kColumns];
      take_token<Form>(token, column, state, out);
      const int64_t at = ((s.first_row + t) * a.value_heads + head) * a.value_dim + strip * kDeltaStrip + column;
      MOESTRO_UNROLL
      for (int c = 0; c < Form::kColumns; ++c)
        if (lane_id() % kDeltaGroups == 0 && c < state.columns) a.out[at + c] = out[c];
      for (; write != writes_end && write->tokens == t + 1; ++write)
        state.store(a.states + write->slot * delta_slot_floats(a));
    }
    __syncthreads();
  }
  write_tails(a, s, before, keeps);
}

template <typename Form>
int32_t launch_delta(const MoestroCudaDelta& a, int64_t first, int64_t count, MoestroCudaStream stream) {
  const int64_t strips = divided_up(a.value_dim, kDeltaStrip);
  return launch_early(delta_kernel<Form>,
                      dim3(static_cast<unsigned>(a.value_heads * strips), static_cast<unsigned>(count)),
                      dim3(Form::kThreads), Form::kShared, stream, a, static_cast<int32_t>(first));
}

}  // namespace

MoestroCudaResult delta(const MoestroCudaDelta* a, MoestroCudaStream stream) {
  if (a->key_dim > MOESTRO_CUDA_DELTA_KEY_MAX || a->conv > MOESTRO_CUDA_DELTA_CONV_MAX) return MOESTRO_CUDA_REFUSED;
  if (const int32_t error = delta_prepare(*a, stream)) return error;
  return with_delta_rows(a->key_dim, [&](auto rows) {
    using Rows = decltype(rows);
    const bool whole = a->value_dim % 4 == 0 && delta_tail_floats(*a) % 4 == 0 && is_aligned16({a->states, a->kept});
    int32_t error = 0;
    if (whole) error = launch_delta<SingleForm<Rows, true>>(*a, 0, a->singles, stream);
    else error = launch_delta<SingleForm<Rows, false>>(*a, 0, a->singles, stream);
    if (error == 0) error = launch_delta<PromptForm<Rows>>(*a, a->singles, a->prompts, stream);
    return error != 0 ? error : delta_chunked(*a, stream);
  });
}

}  // namespace moestro::kernels::cuda

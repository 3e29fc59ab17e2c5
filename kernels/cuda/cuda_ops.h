#pragma once
// Ops over the functions of the CUDA plugin. Pointers to activations, weights, biases and caches are to device memory;
// spans and their contents are in host memory. Every operation is queued on one stream and returns at once. The first
// error is kept, and operations after it do nothing. Like every Ops it has one caller.

#include <memory>
#include <vector>

#include "common/status.h"
#include "kernels/cuda/device_memory.h"
#include "kernels/ops.h"

namespace moestro::kernels::cuda {

/// A layer's experts on all rows of a step, routed and sorted on the device.
struct LayerExperts {
  const ExpertLayout& layout;
  const uint64_t* slots = nullptr;     ///< device, [experts]: the address of an expert's blob; 0: not in device memory,
                                       ///< its rows are not written
  const int32_t* ids = nullptr;        ///< device, [n, top_k]
  const uint8_t* left_out = nullptr;   ///< device, [n], may be null: rows of sequences that have failed
  int64_t n = 0, experts = 0, top_k = 0;
  const float* x = nullptr;            ///< [n, hidden]
  float* out = nullptr;                ///< [n, top_k, hidden]
  bool sorted = false;  ///< norm_route() of these rows came before, and sorts_routes(n)
  GatedUnit unit = {};
};

/// Whether MOESTRO_CUDA_DELTA_CHUNKS is 1 in the environment: long prompts take the gated delta rule in chunks, which
/// changes log-probabilities more than other roundings do (docs/decisions/0065).
bool asks_for_delta_chunks();

class CudaOps final : public Ops {
 public:
  /// `functions` are never freed. They apply to the device that the calling thread has selected, and this thread makes
  /// all calls.
  static Result<std::unique_ptr<CudaOps>> create(const MoestroCudaFunctions& functions, OpsOptions options);
  ~CudaOps() override;

  /// The first error of anything that was queued, if it is known yet.
  Status status() const;
  /// Waits for everything that was queued, then returns status().
  Status wait();
  MoestroCudaStream stream() const { return queue_.stream; }
  /// The stream with its functions and its error, for work other than operations.
  DeviceQueue& queue() { return queue_; }
  StagingRing& staging() { return staging_; }

  /// Bytes of the workspaces for steps up to a size.
  struct Room {
    int64_t activated = 0;  ///< activated_bytes
    int64_t routes = 0;     ///< routes_bytes
    int64_t partial = 0;    ///< partial_bytes_max
    int64_t rounded = 0;    ///< rounded_bytes: of tokens in the widest rows, or of their routes in x
    int64_t sums = 0;       ///< sums_bytes
    int64_t positions = 0;  ///< positions that a sequence may have
    int64_t delta = 0;      ///< delta_bytes
    int64_t latents = 0;    ///< latent_bytes_max
  };
  /// Makes this room, so that steps do not allocate. status() says whether there was enough memory.
  void reserve(const Room& room);
  /// What experts() needs between its two products, for n routed rows; for the routes of n tokens.
  static int64_t activated_bytes(int64_t n, int64_t ffn);
  static int64_t routes_bytes(int64_t n, int64_t top_k, int64_t experts);
  /// n rows of activations as bf16.
  static int64_t rounded_bytes(int64_t n, int64_t cols);
  /// The most that matmul() uses for sums over parts of the columns.
  static int64_t sums_bytes(int64_t n, int64_t rows);
  /// The most bytes that attention on up to n queries, at positions up to `positions`, needs for parts that are
  /// computed in parallel.
  static int64_t partial_bytes_max(const AttentionShape& shape, int64_t n, int64_t positions);

  /// Sends what attention reads of these sequences, of one token each, so that no layer with this view has to. Returns
  /// the number of parts that it is launched for. The launches depend only on this and on the number of sequences.
  int64_t send_sequences(const AttentionShape& shape, std::span<const AttentionSequence> sequences);

  /// The same for gated_delta(), of whatever shape.
  struct DeltaStep {
    const MoestroCudaDeltaSequence* sequences;
    const MoestroCudaDeltaWrite* writes;
    const MoestroCudaDeltaRow* rows;
    const MoestroCudaDeltaChunk* chunks;
    int64_t singles = 0, prompts = 0, chunked = 0;  ///< sequences of one token, of more, and those with chunks
  };
  DeltaStep send_states(std::span<const AttentionSequence> sequences);
  /// For gated_delta(), until the next call: where it keeps states that it overwrites, with room for a slot for each
  /// sequence; `again`: it goes on from what was kept there.
  struct KeptStates {
    float* states = nullptr;
    bool again = false;
  };
  void keep_states(KeptStates kept) { kept_ = kept; }
  /// What gated_delta() needs for n rows.
  static int64_t delta_bytes(const DeltaShape& shape, int64_t n, bool in_chunks);
  static bool computes_delta(const DeltaShape& shape);

  /// As send_sequences() for latent attention over a cache of this format.
  int64_t send_sequences(const LatentShape& shape, DType cache, std::span<const AttentionSequence> sequences);
  /// The most bytes that latent attention on up to n queries needs beside Room::partial, and its part of that.
  static int64_t latent_bytes_max(const LatentShape& shape, int64_t n);
  static int64_t latent_partial_bytes_max(const LatentShape& shape, int64_t n, int64_t positions);

  /// Whether norm_route() of n rows also sorts the routes for experts(), if nothing else is sorted in between.
  static bool sorts_routes(int64_t n) { return n <= MOESTRO_CUDA_ROUTE_ROWS; }
  /// What becomes of the residual stream where a block of a layer ends.
  void residual(const MoestroCudaResidual& work);
  /// Computes the experts of a layer in two launches, or three for many tokens, and sorts their routes before if
  /// need be, without the host.
  void experts(const LayerExperts& work);
  /// Like combine, but y = base + the sums.
  void combine_onto(const float* base, const float* rows, const float* weights, int64_t n, int64_t top_k,
                    int64_t hidden, float* y);
  /// Like sum_squares, but rows whose sum is not finite become zeros, and bad_layer[t] (device, initially -1) becomes
  /// the first such layer.
  void guard(float* x, int64_t n, int64_t dim, int32_t layer, int32_t* bad_layer);
  /// ids[t] (device): the token drawn from row t of logits [n, vocabulary] as how[t] says, or the most probable if
  /// `how` is empty; -1 if a logit is not finite.
  void sample(const float* logits, int64_t n, int64_t vocabulary, std::span<const MoestroCudaSampling> how,
              int32_t* ids);
  /// What sample() needs for n rows, and room for it, so that it does not allocate.
  static int64_t sample_bytes(int64_t n);
  void reserve_sampling(int64_t n);

  const OpsOptions& options() const override { return options_; }
  /// Whether there are kernels for weights of this format, with or without a device to run them.
  static constexpr bool computes_with(DType weight) {
    return weight <= DType::kInt4 || (is_blocks(weight) && !is_made_of_others(weight));
  }
  /// The same of an expert. Where its matrices differ, at least one is of blocks, and the others are of blocks or of 16
  /// bits.
  static constexpr bool computes_with(const ExpertFormats& f) {
    if (f.dtype() != DType::kMixed) return computes_with(f.dtype());
    const auto of_blocks = [](DType d) { return is_blocks(d) && computes_with(d); };
    const auto may_be_mixed = [&](DType d) { return of_blocks(d) || d == DType::kBF16 || d == DType::kF16; };
    return may_be_mixed(f.gate) && may_be_mixed(f.up) && may_be_mixed(f.down) &&
           (of_blocks(f.gate) || of_blocks(f.up) || of_blocks(f.down));
  }
  bool supports(DType weight) const override { return computes_with(weight); }
  void matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y,
              Activations activations) override;
  void matmul_group(const float* x, int64_t n, std::span<const GroupProduct> products,
                    Activations activations) override;
  void matmul_onto(const float* x, int64_t n, const Weight& w, const float* bias, float* product, float* y) override;
  bool fuses(const Weight& router) const override {
    return router.dtype == DType::kF32 && router.cols <= MOESTRO_CUDA_ROUTE_WIDTH &&
           router.rows <= MOESTRO_CUDA_EXPERTS_MAX;
  }
  void place_heads(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const HeadsToPlace& heads,
                   const KvView& cache) override;
  void norm_route(const RouteInput& in, const RouterSpec& spec, int32_t* ids, float* weights) override;
  void gather_rows(const Weight& table, std::span<const int32_t> ids, float* y) override;
  void rms_norm(const float* x, int64_t n, int64_t dim, const float* weight, float eps, float* y) override;
  void layer_norm(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias, float eps,
                  float* y) override;
  void sum_squares(const float* x, int64_t n, int64_t dim, float* sums) override;
  void rope(float* x, int64_t n, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
            const float* sin) override;
  void kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* k,
                const float* v, const KvView& cache) override;
  void attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                 const float* sink_q, const KvView& cache, float* out) override;
  void router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids, float* weights) override;
  void expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x, std::span<const RoutedRow> rows,
                  int64_t top_k, float* out, const GatedUnit& unit) override;
  void combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden, float* y) override;
  void silu_mul(float* gate, const float* up, int64_t count) override;
  void exponentials(const float* x, int64_t count, float shift, float factor, float* y) override;
  void add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) override;
  void scale(float* x, int64_t count, float factor) override;
  void scale_rows(const float* x, const float* factors, int64_t n, int64_t each, int64_t dim, float* y) override;
  void clamp(float* x, int64_t count, float limit) override;
  bool supports_delta() const override { return true; }
  void gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences, const DeltaInput& in,
                   float* states, float* out) override;
  void gated_norm(float* x, int64_t n, int64_t dim, const float* weight, float eps, float* gate) override;
  void sigmoid_mul(float* x, const float* gate, int64_t count) override;
  bool supports_latent() const override { return true; }
  void latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* kv,
                    const float* norm, float eps, const float* cos, const float* sin, const KvView& cache) override;
  /// Absorbed, whatever the form asked for.
  void latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                        const float* cos, const float* sin, const Weight& kv_b, const KvView& cache,
                        float* out) override;

 private:
  explicit CudaOps(const MoestroCudaFunctions& functions, OpsOptions options);
  const MoestroCudaOps& ops() const { return queue_.functions.ops; }
  bool fine() const { return queue_.error == 0; }
  /// Whether a product may round its activations, and is faster if it does.
  bool on_tensor_cores(int64_t tokens, DType weights) const;
  /// The most tiles of tokens of `rows` routed rows of so many experts.
  static int64_t token_tiles(int64_t rows, int64_t experts) { return rows / MOESTRO_CUDA_TILE_TOKENS_MIN + experts; }
  /// Room for the routes of n tokens; null pointers after an error.
  struct RoutesRoom {
    MoestroCudaSortRoutes sort;
    MoestroCudaTokenTile* tiles;
  };
  RoutesRoom routes_room(const int32_t* ids, int64_t n, int64_t top_k, int64_t experts);
  /// Room for rows as bf16.
  uint16_t* rounded_room(int64_t n, int64_t cols);
  /// What attention reads of the step's sequences, flattened.
  void flatten(std::span<const AttentionSequence> sequences);
  /// Units of sequences that have many queries, and of the others.
  void cut_units(const AttentionShape& shape, std::span<const AttentionSequence> sequences, bool may_round);

  /// The number of parts of a launch: those of the furthest query, rounded up to a power of two so that many steps have
  /// equal launches.
  int64_t launched_parts() const;
  /// Room for the results of parts that are computed in parallel; null if they are not.
  float* partial_room(const AttentionShape& shape, int64_t units, int64_t parts);

  /// Queries of a step that latent attention computes together, in units of up to `most` pairs.
  struct LatentPass {
    int64_t first_query, queries, first_unit, units;
    int64_t groups, most, tiles;  ///< tiles: of the units of one group
    int32_t pairs_most;
    bool rounded;
  };
  bool rounds_latents(const LatentShape& shape, DType cache, const AttentionSequence& sequence) const;
  /// What latent attention reads of the step's sequences: in latent_order_, flattened, in units and passes.
  void cut_latents(const LatentShape& shape, DType cache, std::span<const AttentionSequence> sequences);
  /// The pass that the next query belongs to.
  LatentPass& latent_pass(const LatentShape& shape, bool rounded, int64_t query);
  void add_latent_units(const LatentShape& shape, LatentPass& pass, int64_t position, int64_t queries);
  void add_latent_unit(LatentPass& pass, int64_t first_pair, int64_t pairs, int64_t last_position);
  float* latent_partial_room(const LatentShape& shape, const LatentPass& pass, int64_t parts);

  OpsOptions options_;
  bool delta_in_chunks_ = false;
  DeviceQueue queue_;
  std::vector<MoestroCudaQuery> query_list_;
  std::vector<uint32_t> block_list_;
  std::vector<MoestroCudaAttentionUnit> unit_list_, prefill_list_;
  std::vector<std::byte> expert_call_;
  std::vector<MoestroCudaDeltaSequence> delta_sequences_;
  std::vector<MoestroCudaDeltaWrite> delta_writes_;
  std::vector<MoestroCudaDeltaRow> delta_rows_;
  std::vector<MoestroCudaDeltaChunk> delta_chunks_;
  KeptStates kept_;
  int64_t furthest_ = 0;  ///< position of any query of query_list_
  int64_t parts_max_ = INT64_MAX;  ///< of a sequence
  std::vector<AttentionSequence> latent_order_;
  std::vector<MoestroCudaLatentUnit> latent_unit_list_;
  std::vector<LatentPass> latent_passes_;
  // Last: they use the queue.
  static_assert(AttentionShape::kViews == 2);
  StagingRing staging_{queue_};
  Mirror queries_[2]{{queue_, staging_}, {queue_, staging_}}, blocks_[2]{{queue_, staging_}, {queue_, staging_}},
      units_[2]{{queue_, staging_}, {queue_, staging_}},
      prefill_units_[2]{{queue_, staging_}, {queue_, staging_}};  ///< by view
  Mirror ids_{queue_, staging_}, sampling_{queue_, staging_}, expert_calls_{queue_, staging_};
  Workspace partial_{queue_}, activated_{queue_}, routes_{queue_}, counters_{queue_}, rounded_{queue_}, sums_{queue_},
      drawn_{queue_};
  Mirror sent_sequences_{queue_, staging_}, sent_writes_{queue_, staging_}, sent_rows_{queue_, staging_},
      sent_chunks_{queue_, staging_};  ///< of gated_delta()
  Workspace prepared_{queue_};
  Mirror latent_units_{queue_, staging_};
  Workspace latents_{queue_};
};

}  // namespace moestro::kernels::cuda

#pragma once
// The operations of the engine behind one interface, which kernels/cpu and kernels/cuda implement. Activations are f32,
// row-major, token by token. Weights are read in the precision in which they are stored. Pointers are to the memory
// that the backend computes on (for the CPU: host memory). Spans and their contents are in host memory. One caller at a
// time (the engine's thread).

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/expert_layout.h"
#include "common/plan_parts.h"
#include "common/status.h"

namespace moestro::machine {
class NodeMap;
}

namespace moestro::kernels {

/// A dense weight [rows, cols], with rows along the reduction dimension, in the form of common/dense_layout.h: rows of
/// row_bytes(), and separate parameters if there are any.
struct Weight {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t rows = 0, cols = 0;
  const uint16_t* parameters = nullptr;  ///< matrix_parameter_bytes(); null if there are none
};

/// One sequence's part of a step for paged attention. KV blocks hold kKvBlockTokens tokens.
inline constexpr int64_t kKvBlockTokens = 16;

struct AttentionSequence {
  int64_t first_token = 0;   ///< row of its first query in q
  int64_t tokens = 0;        ///< queries in this step
  int64_t first_position =
      0;  ///< position of its first query: it attends to positions [0, first_position + i] (window permitting)
  std::span<const uint32_t> blocks = {};  ///< block table from position 0
  uint32_t state = 0;                ///< slot of its state before its first query; not read at position 0
  /// Where its state goes: ascending, each after a query of this step (two may be after one), the last after its last.
  std::span<const StateWrite> states = {};
  /// seen_end 0: causal. Otherwise each query sees positions [seen_first, seen_end), those behind its own too: an
  /// encoder's rows, or a decoder's rows over the memory of its encoder. Without window and sinks.
  int64_t seen_first = 0, seen_end = 0;

  constexpr bool is_causal() const { return seen_end == 0; }
};

struct AttentionShape {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t window = 0;  ///< 0 = all; else a query sees positions > its own - window
  float scale = 0.0f;
  int64_t sinks = 0;   ///< with a window: and the first `sinks` positions (attention sinks; Xiao et al. 2023)
  /// [heads]: a logit of each head that takes part in the softmax and has no value, so the weights of the positions sum
  /// to less than 1 (gpt-oss). May be null.
  const float* sink_logits = nullptr;
  /// [heads][2 * bias_reach + 1]: what each head adds to q k (before `scale`) by the key's position minus the query's,
  /// from -bias_reach to bias_reach; further ones are as far as that (T5). May be null.
  const float* position_bias = nullptr;
  int64_t bias_reach = 0;
  /// Layers may see a step's sequences in different ways (whole, or in chunks). Calls with the same number have the
  /// same sequences throughout a step, so that a device may keep each list.
  int32_t view = 0;
  static constexpr int32_t kViews = 2;

  /// Whether there are positions between the sinks and the window of a query at `position`, which it does not see.
  /// Otherwise it sees all positions up to its own.
  constexpr bool has_gap(int64_t position) const { return window > 0 && position >= sinks + window; }
  /// The first position of the window of a query at `position`; 0 if there is no gap.
  constexpr int64_t window_begin(int64_t position) const { return has_gap(position) ? position - window + 1 : 0; }
};

/// One layer's KV cache. Every device reads and writes a block of kv_block_bytes() the same way:
///
///   values [2: K, V][kv_heads][kKvBlockTokens][head_dim]   f32, bf16, f16 (rounded to nearest, ties to even) or int8
///   scales [2: K, V][kv_heads][kKvBlockTokens]             int8 only, f32, at kv_scales_offset()
///
/// int8 is symmetric, with one scale for each token and KV head of K and of V: value = q * scale, scale = max |x| /
/// 127, q = x * (127 / max |x|) in f32, rounded to nearest. max |x| below 1e-35: scale and all q are 0. An infinity or
/// NaN among x: scale is NaN. A block ends at a multiple of 64 bytes.
struct KvView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t blocks = 0;
};
bool is_kv_dtype(DType dtype);                                        ///< f32, bf16, f16, int8
int64_t kv_block_bytes(const AttentionShape& shape, DType dtype);     ///< of one layer
int64_t kv_scales_offset(const AttentionShape& shape,
                         DType dtype);  ///< bytes of a block's values; int8: its scales follow
inline constexpr float kKvLeastMagnitude = 1e-35f;                    ///< int8: rows below it are zeros

/// Multi-head latent attention (MLA; DeepSeek-V2, 2024): keys and values of all heads are products of one latent of a
/// position, and only that is cached, with one rotated key that all heads share. A block of latent_block_bytes():
///
///   latents [kKvBlockTokens][kv_rank], rotated keys [kKvBlockTokens][rope_dim]   f32, bf16, f16 or int8 as in KvView
///   scales [2: latents, keys][kKvBlockTokens]                                    int8 only, f32
struct LatentShape {
  /// How scores and values are computed: in the space of the latents, with queries multiplied by the keys' weights
  /// ("absorbed"), or from every head's keys and values, made of the latents anew ("expanded").
  enum class Form : uint8_t { kFaster, kAbsorbed, kExpanded };  ///< deterministic, the faster one is kAbsorbed

  int64_t heads = 0, kv_rank = 0;
  int64_t nope_dim = 0, rope_dim = 0;  ///< of a head's query: components without rotation, then those with it
  int64_t value_dim = 0;
  float scale = 0.0f;
  bool interleaved = false;  ///< components 2j and 2j + 1 are rotated as a pair, and kept as j and j + rope_dim / 2
  Form form = Form::kFaster;

  constexpr int64_t query_dim() const { return nope_dim + rope_dim; }
  constexpr int64_t expanded_dim() const { return nope_dim + value_dim; }  ///< a head's key and value
};
int64_t latent_block_bytes(const LatentShape& shape, DType dtype);    ///< of one layer
int64_t latent_scales_offset(const LatentShape& shape, DType dtype);  ///< bytes of a block's latents and keys

/// The gated delta rule (Gated DeltaNet; Yang, Kautz and Hatamizadeh 2024), as Qwen3-Next has it. Of every channel of
/// q, k and v, a causal convolution over `conv` positions, then SiLU. Each head of q and k becomes x / sqrt(sum x^2 +
/// 1e-6), and q is scaled by key_dim^-1/2. Value head h has the q and k of key_head(h), a decay exp(-exp(a_log) *
/// softplus(a + dt_bias)), a rate sigmoid(b), and a state S [key_dim, value_dim], zeros at first. At each position: S
/// *= decay; S += k (rate * (v - k S))^T; out = q S.
///
/// A slot holds all that a layer keeps of a sequence, delta_state_floats() f32:
///   tail [conv - 1][channels]   q, k, v of the last positions before their convolution; zeros before position 0
///   S    [value_heads][key_dim][value_dim]
struct DeltaShape {
  int64_t key_heads = 0, value_heads = 0, key_dim = 0, value_dim = 0, conv = 0;
  bool in_turn = false;  ///< the heads of values take those of keys in turn; else neighbours have the same

  constexpr int64_t key_head(int64_t value_head) const {
    return in_turn ? value_head % key_heads : value_head / (value_heads / key_heads);
  }
  constexpr int64_t keys() const { return key_heads * key_dim; }
  constexpr int64_t values() const { return value_heads * value_dim; }
  constexpr int64_t channels() const { return 2 * keys() + values(); }
  constexpr int64_t tail_floats() const { return (conv - 1) * channels(); }
};
int64_t delta_state_floats(const DeltaShape& shape);
inline constexpr float kDeltaNormEps = 1e-6f;

/// What goes into it, token by token; q, k and v are overwritten.
struct DeltaInput {
  float *q = nullptr, *k = nullptr, *v = nullptr;
  const float *a = nullptr, *b = nullptr;  ///< [tokens, value_heads]
  const float* conv = nullptr;             ///< [channels, conv]: of q, k and v
  const float *a_log = nullptr, *dt_bias = nullptr;
};

/// How a router's logits become a token's experts and their weights.
struct RouterSpec {
  /// Of the logits, in f32. kSparseMixer (Phi-3.5-MoE; Liu et al. 2024): top_k is 2, nothing below jitter counts. The
  /// best expert's weight is its share of the softmax over the experts that are near it: (best - logit) / max(|logit|,
  /// best) <= 2 jitter; the second's the same without the first.
  enum class Scores : uint8_t { kSoftmax, kSigmoid, kSparseMixer };
  int64_t experts = 0, top_k = 0;
  Scores scores = Scores::kSoftmax;
  bool normalise = false;            ///< the chosen weights are divided by their sum
  float scale = 1.0f;                ///< and then multiplied by this (a "routed scaling factor")
  const float* bias = nullptr;       ///< [experts]: added to the scores only for the choice; may be null
  // Group-limited choice (DeepSeek-V2, V3): experts in `groups` equal groups of consecutive ids; only those of the
  // `groups_kept` best groups can be chosen. A group's value is the sum of its `group_best` best experts.
  int64_t groups = 1, groups_kept = 1, group_best = 2;
  float jitter = 0.0f;  ///< kSparseMixer
};

/// What joins an expert's gate and up; of an expert without a gate, what becomes of up (kRelu).
struct GatedUnit {
  enum class Kind : uint8_t { kSilu, kClampedSwiglu, kRelu };
  Kind kind = Kind::kSilu;
  /// kClampedSwiglu (gpt-oss): g * sigmoid(alpha * g) * (u + 1), where g is gate, at most `limit`, and u is up, clamped
  /// to [-limit, limit]. kSilu: silu(gate) * up. kRelu: max(up, 0).
  float alpha = 1.702f, limit = 7.0f;
};

/// One row of an expert's work: the token (row of x), and the rank of this expert among the token's top-k choices.
struct RoutedRow {
  int32_t token = 0;
  int32_t rank = 0;
};

/// The instruction sets with kernels, slower ones first. A machine may have any subset of them.
enum class Isa : uint8_t { kScalar, kAvx2, kAvx2Vnni, kAvx512, kAvx512Vnni, kAvx512Bf16Vnni, kAvx512Amx };
inline constexpr Isa kIsas[] = {Isa::kScalar,     Isa::kAvx2,           Isa::kAvx2Vnni, Isa::kAvx512,
                                Isa::kAvx512Vnni, Isa::kAvx512Bf16Vnni, Isa::kAvx512Amx};
/// Whether the machine can run it, and this program has kernels for it (decision 28); detected once.
bool has_isa(Isa isa);
/// The fastest of those.
Isa best_isa();
/// Faster than best_isa() where this program was compiled for another machine.
Isa fastest_isa_of_machine();
/// The instructions that `isa` uses for products with weights of a precision, as text: "AVX-512 VNNI".
std::string_view product_instructions(Isa isa, DType weights, bool deterministic);
/// The same for every precision: "AVX-512 (f32, bf16, f16), AVX-512 VNNI (int8, int4)".
std::string instructions_by_precision(Isa isa, bool deterministic);
/// Why a processor's AMX is not used; empty if it has no AMX, or if it is used.
std::string_view amx_not_used();
std::string_view isa_name(Isa isa);

/// What a product may do to its activations without OpsOptions::deterministic.
enum class Activations : uint8_t {
  kRounded,  ///< round them to bf16 (bf16 weights), or to 8 bits a number with a scale for each 64 (int8, int4)
  kExact,    ///< do not round, because a small difference decides (routing)
};

/// One of several products of the same rows.
struct GroupProduct {
  const Weight* weight;
  const float* bias;  ///< may be null
  float* y;
};

/// Heads of a step between their products and attention; by row of the step.
struct HeadsToPlace {
  float* q;
  const float *k, *v;
  int64_t rotary_dim;
  const float *cos, *sin;
  const float *q_norm = nullptr, *k_norm = nullptr;  ///< weights of a norm of each head; null: none
  float eps = 0;
  float* sink_q = nullptr;  ///< not null: the queries, rotated by these instead
  const float *sink_cos = nullptr, *sink_sin = nullptr;
};

/// What comes before a router's choice.
struct RouteInput {
  const float* x;  ///< [n, hidden]
  int64_t n, hidden;
  const float* norm;  ///< of x
  float eps;
  float* normed;
  const Weight& router;
  const float* bias;  ///< of the logits; may be null
  float* logits;
};

struct OpsOptions {
  int threads = 0;             ///< 0: one per physical core
  bool deterministic =
      false;  ///< a row's result does not depend on the other rows, on how many there are, or on `threads`
  Isa isa = Isa::kScalar;      ///< best_isa() if the machine does not have it
  std::vector<int> cpus = {};  ///< CPU that each thread is pinned to; empty: not pinned
  std::vector<int> nodes = {};  ///< NUMA node of each thread; empty: all are of one
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual const OpsOptions& options() const = 0;
  /// The NUMA nodes of the weights: threads of a piece's node compute with it (OpsOptions::nodes). Only the CPU backend
  /// uses it.
  virtual void set_weight_nodes(const machine::NodeMap& /*nodes*/) {}
  /// Counts of the parts of products whose weights are on a node with threads, by whether that node's threads computed
  /// them.
  struct PlacedParts {
    uint64_t on_their_node = 0, elsewhere = 0;
  };
  virtual PlacedParts placed_parts() const { return {}; }
  virtual bool supports(DType weight) const = 0;

  /// y[n, rows] = x[n, cols] * w^T + bias (may be null).
  virtual void matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y,
                      Activations activations = Activations::kRounded) = 0;
  /// matmul() of each; a device may compute them together.
  virtual void matmul_group(const float* x, int64_t n, std::span<const GroupProduct> products,
                            Activations activations = Activations::kRounded);
  /// y += x w^T + bias. `product`: room for it, [n, rows]; then not specified.
  virtual void matmul_onto(const float* x, int64_t n, const Weight& w, const float* bias, float* product, float* y);
  /// Whether place_heads() and norm_route() are there for such a router. They do what several operations do.
  virtual bool fuses(const Weight& /*router*/) const { return false; }
  /// rms_norm of each head of q and k, rope, kv_write.
  virtual void place_heads(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                           const HeadsToPlace& heads, const KvView& cache);
  /// rms_norm, matmul (exact), router_top_k.
  virtual void norm_route(const RouteInput& in, const RouterSpec& spec, int32_t* ids, float* weights);
  /// y[i] = row `ids[i]` of table, as f32. The table has no parameters.
  virtual void gather_rows(const Weight& table, std::span<const int32_t> ids, float* y) = 0;
  /// y = x / sqrt(mean(x^2) + eps) * weight over each row of `dim`; y may be x.
  virtual void rms_norm(const float* x, int64_t n, int64_t dim, const float* weight, float eps, float* y) = 0;
  /// y = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias (may be null) over each row of `dim`; y may be x.
  virtual void layer_norm(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias, float eps,
                          float* y) = 0;
  /// sums[t] = the sum of x^2 over row t: NaN or infinite if the row contains NaN or infinity, or values so large that
  /// a norm in f32 makes them zero.
  virtual void sum_squares(const float* x, int64_t n, int64_t dim, float* sums) = 0;
  /// Rotates pairs (j, j + rotary_dim/2) of every head in place. x: [n, heads, head_dim]; cos, sin: [n, rotary_dim/2].
  virtual void rope(float* x, int64_t n, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                    const float* sin) = 0;
  /// Writes k, v [tokens, kv_heads, head_dim] of every sequence's queries into its blocks.
  virtual void kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* k,
                        const float* v, const KvView& cache) = 0;
  /// out[tokens, heads, head_dim] = softmax(scale (q k^T + position_bias)) v, causal unless the sequence says what is
  /// seen, over the cache (kv_write comes first). Head h reads
  /// kv head h / (heads / kv_heads). If a query has a gap (AttentionShape::has_gap), its products with the sinks' keys
  /// use sink_q, which has the layout of q: the same query, rotated as if its position directly followed sinks and
  /// window. sink_q may be null if no query has a gap.
  virtual void attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                         const float* sink_q, const KvView& cache, float* out) = 0;
  /// Whether the two operations of latent attention are there.
  virtual bool supports_latent() const { return false; }
  /// Writes the queries' positions: kv [tokens, kv_rank + rope_dim] is a latent, which becomes rms_norm(latent, norm,
  /// eps), and a key, which is rotated. cos, sin: [tokens, rope_dim / 2].
  virtual void latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* kv,
                            const float* norm, float eps, const float* cos, const float* sin, const KvView& cache);
  /// out[tokens, heads, value_dim] = softmax(scale q k^T) v, causal, over the cache (latent_write comes first). q
  /// [tokens, heads, nope_dim + rope_dim] is not rotated yet. kv_b [heads * (nope_dim + value_dim), kv_rank], without
  /// parameters (f32, bf16, f16): a head's rows make its key and its value of a latent.
  virtual void latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                                const float* cos, const float* sin, const Weight& kv_b, const KvView& cache,
                                float* out);
  /// Whether gated_delta() and sigmoid_mul() are there.
  virtual bool supports_delta() const { return false; }
  /// out [tokens, value_heads, value_dim]; reads and writes slots of `states`. No slot that one sequence writes is one
  /// that another reads or writes. A sequence's result does not depend on the others. Nor does it depend on how it is
  /// cut into steps, unless long prompts are computed in chunks.
  virtual void gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences,
                           const DeltaInput& in, float* states, float* out);
  /// gate[i] = silu(gate[i]) * rms_norm(x)[i] for n rows of x, which may be overwritten.
  virtual void gated_norm(float* x, int64_t n, int64_t dim, const float* weight, float eps, float* gate);
  /// x[i] *= sigmoid(gate[i]).
  virtual void sigmoid_mul(float* x, const float* gate, int64_t count);
  /// The top_k experts of each row of logits [n, experts] with the largest score + bias (sigmoids without bias and
  /// groups: the largest logits), in descending order (ties: lower id first), and their weights: the scores without
  /// bias, as `spec` says. ids, weights: [n, top_k]. Whatever the logits, a row's ids are distinct and within
  /// [0, experts); a NaN among them makes the row's weights NaN.
  virtual void router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids, float* weights) = 0;
  /// One expert on its tokens: for every row r, out[(r.token * top_k + r.rank), :] = down(unit(gate x, up x)), x = row
  /// r.token, each product with its bias if the layout has them. `blob` is in the layout of common/expert_layout.h.
  /// Experts may come in any order.
  virtual void expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                          std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& unit = {}) = 0;
  /// y[t] += sum over ranks, in rank order, of weights[t, rank] * rows[t * top_k + rank]. rows: [n * top_k, hidden].
  virtual void combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden, float* y) = 0;
  /// gate[i] = silu(gate[i]) * up[i].
  virtual void silu_mul(float* gate, const float* up, int64_t count) = 0;
  /// x[i] = max(x[i], 0); NaN stays NaN. This one is for host memory.
  virtual void relu(float* x, int64_t count);
  /// Whether attention() has AttentionSequence::seen_end and position_bias, and expert_ffn() experts without a gate.
  virtual bool supports_encoders() const { return false; }
  /// y[i] = exp((x[i] - shift) * factor), and 0 if that is below 2e-38 (so for x = -infinity). With the largest x as
  /// shift, these are the weights of tokens at temperature 1 / factor. The exponent is rounded to f32. y may be x.
  virtual void exponentials(const float* x, int64_t count, float shift, float factor, float* y) = 0;
  /// y[t, :] += scale_t * x[t, :], scale_t = sigmoid(logit[t]) or 1 if logit is null.
  virtual void add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) = 0;
  /// x *= factor.
  virtual void scale(float* x, int64_t count, float factor) = 0;
  /// y[t, i, :] = factors[t, i] * x[t, :]; x: [n, dim], y: [n, each, dim]. x may be y if each is 1. This one is for
  /// host memory.
  virtual void scale_rows(const float* x, const float* factors, int64_t n, int64_t each, int64_t dim, float* y);
  /// x clamped to [-limit, limit].
  virtual void clamp(float* x, int64_t count, float limit) = 0;
};

/// The CPU backend with `options` (isa is lowered to what the machine has; threads 0 is resolved).
std::unique_ptr<Ops> make_cpu_ops(OpsOptions options);
/// The plain loops that every other backend is compared with: one thread, double accumulation.
std::unique_ptr<Ops> make_reference_ops();

}  // namespace moestro::kernels

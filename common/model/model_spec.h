#pragma once
// The description of a model as data. One small file per architecture (common/model/architectures/) builds it from
// config.json. Pack, engine, planner and scheduler read it. The engine never asks for an architecture's name.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/ids.h"
#include "common/model/quantisation.h"

namespace moestro::model {

/// What joins an expert's or MLP's gate and up, or, without a gate, what becomes of up (kRelu); kernels::GatedUnit says
/// how.
enum class Activation : uint8_t { kSilu, kClampedSwiglu, kRelu };

/// Rotary position embedding; formulas as in Hugging Face transformers' modeling_rope_utils.
struct RopeSpec {
  enum class Scaling : uint8_t { kNone, kLinear, kDynamic, kYarn, kLlama3, kLongrope };
  double theta = 10000.0;
  int64_t rotary_dim = 0;  ///< leading components of a head that are rotated; the others pass
  Scaling scaling = Scaling::kNone;
  double factor = 1.0;
  int64_t original_max_position = 0;
  // yarn
  double beta_fast = 32.0, beta_slow = 1.0;
  std::optional<double> attention_factor, mscale, mscale_all_dim;
  bool truncate = true;
  // llama3
  double low_freq_factor = 1.0, high_freq_factor = 4.0;
  // longrope: what each frequency is divided by, and what cos and sin are multiplied by, in an engine whose sequences
  // end within original_max_position (short) or may go beyond it (long)
  std::vector<double> short_factors = {}, long_factors = {};
  double short_mscale = 1.0, long_mscale = 1.0;

  /// The checkpoint's pairs are components 2j and 2j + 1 of a head. Packs have them as j and j + rotary_dim / 2, as all
  /// others: the rows of q and k are put into that order.
  bool pairs_adjacent = false;
};

struct AttentionSpec {
  /// RMSNorm over each head, over all heads at once, or, without weights, over each head after its rotation (Llama-4).
  enum class QkNorm : uint8_t { kNone, kPerHead, kFullWidth, kRotatedHeads };
  /// A query at position p is multiplied by 1 + scale * ln(1 + floor((p + 1) / floor)) (Nakanishi 2025; Llama-4).
  struct Temperature {
    double scale = 0.1, floor = 8192.0;
  };
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  bool qkv_bias = false, output_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  std::optional<double> clip_qkv;  ///< q, k, v clamped to [-clip, clip] after projection (and its norm, as OLMoE does)
  int64_t sliding_window = 0;      ///< a token sees itself and the window-1 before it; 0 = all
  int64_t chunk = 0;               ///< a token sees what of its own chunk of so many positions is before it; 0 = all
  bool rope = true;                ///< false: nothing is rotated (NoPE)
  std::optional<Temperature> temperature;
  double scale = 0.0;              ///< of q.k, normally head_dim^-1/2
  bool sink_logits = false;        ///< a learned logit for each head takes part in the softmax and has no value
  bool output_gate = false;        ///< what a head attended is multiplied by the sigmoid of a projection (Qwen3-Next)
  bool position_bias = false;      ///< q.k gets the bias of its stack's RelativeBias (before the scale)
};

/// A learned bias of each head for the distance of a key from its query (T5; Raffel et al. 2020): half of the buckets
/// are exact distances, the others grow by a factor up to `reach`. One table serves all layers of a stack.
struct RelativeBias {
  int64_t buckets = 32, reach = 128;
};

constexpr bool has_norm_weights(AttentionSpec::QkNorm norm) {
  return norm == AttentionSpec::QkNorm::kPerHead || norm == AttentionSpec::QkNorm::kFullWidth;
}

/// Multi-head latent attention (MLA; DeepSeek-V2): keys and values of all heads are made of one latent of a position,
/// and of a rotated key that all heads share. kernels::LatentShape says what is computed.
struct LatentSpec {
  int64_t heads = 0;
  int64_t q_rank = 0;   ///< queries are made of a normed projection to this width; 0: of the hidden state itself
  int64_t kv_rank = 0;  ///< width of the latent
  int64_t nope_dim = 0, rope_dim = 0;  ///< of a head's query and key: components without rotation, and those with it
  int64_t value_dim = 0;
  bool bias = false;         ///< of the projections to q_rank and to the latent, and of the output
  bool interleaved = true;   ///< components 2j and 2j + 1 are rotated as a pair; else j and j + rope_dim / 2
  double norm_eps = 1e-6;    ///< of the norms of both projections
  double scale = 0.0;        ///< of q.k
};

/// Gated delta rule (Gated DeltaNet, Yang et al. 2024; Qwen3-Next): linear attention with a state of each sequence, not
/// of its positions. kernels::DeltaShape says what is computed.
struct DeltaSpec {
  int64_t key_heads = 0, value_heads = 0;  ///< each head of keys serves value_heads / key_heads of values,
  bool in_turn = false;                    ///< every key_heads-th of them; else neighbours
  int64_t key_dim = 0, value_dim = 0;      ///< of a head
  int64_t conv = 4;                        ///< positions that the convolution before it sees
  double norm_eps = 1e-6;                  ///< of the gated norm behind it
  bool decay_as_is = false;                ///< delta.a_log holds -exp(a_log)

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
};

/// How one expert computes, and how its weights may be stored.
struct ExpertSpec {
  int64_t hidden = 0, ffn = 0;
  int matrices = 3;  ///< 3: gate, up, down; 2: up, down
  bool is_gated() const { return matrices == 3; }
  bool bias = false;
  Activation activation = Activation::kSilu;
  double swiglu_alpha = 1.702, swiglu_limit = 7.0;  ///< of kClampedSwiglu
};

/// How a router's logits become a token's experts and their weights; kernels::RouterSpec says what each setting does.
struct RouterSpec {
  enum class Scores : uint8_t { kSoftmax, kSigmoid, kSparseMixer };
  Scores scores = Scores::kSoftmax;
  double jitter = 0.0;        ///< of kSparseMixer
  bool normalise = true;      ///< weights of the chosen experts sum to 1
  double scale = 1.0;         ///< of the weights, after that
  bool on_input = false;      ///< a weight multiplies its expert's input, not its output
  bool choice_bias = false;   ///< router.bias is added to the scores, for the choice alone
  int64_t groups = 1, groups_kept = 1;
  int64_t group_best = 2;     ///< a group's value is the sum of so many of its best experts
  bool logit_bias = false;    ///< router.logit_bias is part of the logits
  int64_t sequence_rows = 0;  ///< of an encoder's pass over a sequence, an expert takes the first so many; 0: all
};

struct MoeSpec {
  int64_t experts = 0, top_k = 0;
  RouterSpec router;
  ExpertSpec expert;
  int64_t shared_ffn = 0;       ///< 0: no shared expert
  bool shared_gate = false;     ///< its output is scaled by sigmoid(gate . x)
  /// Experts and router see the layer's input, not what attention has added to it; the shared expert sees that, through
  /// a norm of its own (Arctic).
  bool before_attention = false;
};

/// What a layer's mixer keeps of each position. kNone: nothing; it has a state of the sequence as a whole (DeltaSpec),
/// or is an encoder's. A decoder's layer with cross-attention keeps of the encoder's positions what it keeps of its
/// own, in blocks of the same cache.
struct KvSpec {
  enum class Kind : uint8_t { kHeads, kLatent, kNone } kind = Kind::kHeads;
  int64_t heads = 0, head_dim = 0;     ///< kHeads: a key and a value of each head
  int64_t kv_rank = 0, rope_dim = 0;   ///< kLatent: a latent and a rotated key

  int64_t numbers() const { return kind == Kind::kLatent ? kv_rank + rope_dim : 2 * heads * head_dim; }
  /// That have a scale of their own where they are stored as int8.
  int64_t vectors() const { return kind == Kind::kLatent ? 2 : 2 * heads; }
};

struct LayerSpec {
  enum class Stack : uint8_t { kDecoder, kEncoder } stack = Stack::kDecoder;
  LayerId index;
  std::optional<MoeLayerId> moe_index;  ///< absent: a dense layer
  // The layer's sequence mixer, one of several kinds (common/model/mixer.h):
  AttentionSpec attention;           ///< unless another kind is set
  std::optional<LatentSpec> latent;
  std::optional<DeltaSpec> delta;
  std::optional<AttentionSpec> cross;  ///< then attention over the encoder's output, with a norm of its own
  KvSpec kv;
  MoeSpec moe;            ///< if moe_index
  int64_t dense_ffn = 0;  ///< if not
};

struct ModelSpec {
  std::string architecture;  ///< as in config.json
  int64_t hidden = 0, vocab = 0, max_position = 0;
  double norm_eps = 1e-6;
  enum class Norm : uint8_t { kRms, kLayer } norm = Norm::kRms;
  bool norm_bias = false;  ///< of kLayer
  double norm_offset = 0.0;  ///< is added to the weights of norms: 1 where they are stored as distances from 1. Not of
                             ///< the gated norms of DeltaSpec
  bool head_bias = false;
  /// Granite's factors: of the embedding; of what a block adds to the residual stream; the logits are divided by the
  /// last.
  double embedding_scale = 1.0, residual_scale = 1.0, logits_divisor = 1.0;
  bool tied_embeddings = false;
  // Of the MLPs of dense layers:
  bool mlp_gated = true, mlp_bias = false;
  Activation activation = Activation::kSilu;
  RopeSpec rope;
  std::vector<LayerSpec> layers;  ///< an encoder's come before its decoder's
  // Of encoder-decoder models. The encoder's output goes through a norm of its own.
  std::optional<RelativeBias> relative_bias;
  bool sinusoidal_positions = false;  ///< are added to the embedding: of `pad_id` + 1 + position (Vaswani et al. 2017)
  std::optional<TokenId> pad_id;
  std::optional<TokenId> decoder_start_id;  ///< what a target begins with; generation_config.json outranks config.json
  std::optional<TokenId> forced_bos_id;     ///< the token after that, of every target; likewise
  int64_t mtp_layers = 0;  ///< in the checkpoint after `layers`: they predict further tokens, and are not packed
  Quantisation quantisation;  ///< of the checkpoint
  /// Parts of a checkpoint that packs do not have, by how their tensors' names begin.
  struct LeftOut {
    const char *prefix, *what;
  };
  std::vector<LeftOut> left_out;
  std::vector<std::string> embedding_copies;  ///< tensors that a checkpoint may have beside the embedding, equal to it
  std::vector<TokenId> eos_ids;  ///< from generation_config.json where there is one, else config.json
  std::optional<TokenId> bos_id;

  int64_t moe_layers() const;
  /// Of the first MoE layer; every supported architecture has one shape for all of them.
  const MoeSpec& moe() const;
  /// Whether sequences have a state beside the entries of their positions.
  bool has_states() const;
  /// The first layer of the decoder, and its first MoE layer: 0 where there is no encoder.
  int64_t encoder_layers() const;
  int64_t encoder_moe_layers() const;
  bool is_encoder_decoder() const { return encoder_layers() > 0; }
};

/// Canonical names of dense tensors in a pack. "layers.N." goes before the names of a layer.
///   embed.weight [vocab, hidden]   norm.weight [hidden]   head.weight [vocab, hidden] (absent if tied)
///   head.bias [vocab]   norm.bias [hidden]
///   input_norm.{weight,bias}, post_attention_norm.{weight,bias} [hidden]
///   attn.{q,k,v,o}.weight [out, in]   attn.{q,k,v,o}.bias [out]   attn.{q,k}_norm.weight [head_dim or heads*head_dim]
///   attn.sink_logits [heads]
///   with a latent, instead of q, k, v: attn.q.weight, or attn.q_a.weight [q_rank, hidden] (and bias),
///   attn.q_a_norm.weight and attn.q_b.weight; attn.kv_a.weight [kv_rank + rope_dim, hidden] (and bias),
///   attn.kv_a_norm.weight; kv_b.weight [heads * (nope_dim + value_dim), kv_rank], never quantised, because it is read
///   along its rows and across them
///   attn.gate.weight [heads*head_dim, hidden] (AttentionSpec::output_gate)
///   of a gated delta rule: attn.{q,k,v,z,o}.weight; what is never quantised: delta.{a,b}.weight [value_heads, hidden],
///   delta.conv.weight [q, k and v, 1, conv], delta.{a_log,dt_bias} [value_heads], delta.norm.weight [value_dim]
///   of an encoder-decoder: encoder_norm.{weight,bias} [hidden]   {encoder,decoder}_bias.weight [buckets, heads]
///   cross_norm.{weight,bias} [hidden]   cross.{q,k,v,o}.{weight,bias}, as those of attn
///   router.weight [experts, hidden]   router.bias, router.logit_bias [experts]
///   shared.{gate,up,down}.weight   shared_gate.weight [1, hidden]   shared_norm.weight [hidden]
///   mlp.{gate,up,down}.weight   mlp.{up,down}.bias
struct DenseTensor {
  std::string name;         ///< canonical
  std::string source_name;  ///< in the checkpoint
  std::vector<int64_t> shape;
  bool exact = false;       ///< packed as f32: rounded, it would choose other experts
  // A part of a tensor of the checkpoint: its rows from source_row on, of source_rows (0: it is all of a tensor).
  int64_t source_rows = 0, source_row = 0;
  /// Not all rows from there on, but so many at a time, from each group of group_step rows. 0: they are adjacent.
  int64_t group_rows = 0, group_step = 0;
  /// Of each `head_rows` rows, 2j and 2j + 1 become j and j + head_rows / 2 (RopeSpec::pairs_adjacent). 0: none move.
  int64_t head_rows = 0;
  /// Of kv_b, in two tensors (GGUF): source_name has the keys of each head, transposed: [heads * kv_rank, key_rows];
  /// this one the values: [heads * value_rows, kv_rank]. Empty: it is one tensor.
  std::string values_name = {};
  int64_t key_rows = 0, value_rows = 0;

  std::vector<int64_t> source_shape() const;
  std::vector<int64_t> values_shape() const;  ///< of values_name
};

/// Where the three matrices of one expert are in the checkpoint: gate, up [ffn, hidden]; down [hidden, ffn], and their
/// biases if it has any. If a tensor holds more than one matrix, expert_storage.h says which part is which.
struct ExpertTensors {
  LayerId layer;
  MoeLayerId moe_layer;
  ExpertId expert;
  std::string gate, up, down;  ///< gate: empty if there is none
  std::string gate_bias = {}, up_bias = {}, down_bias = {};
};

/// The form in which a checkpoint holds the experts' matrices.
struct ExpertStorage {
  /// gate and up: tensors of their own; rows of one tensor, in turn; the two halves of one tensor's rows.
  enum class GateUp : uint8_t { kApart, kInTurn, kHalves };
  bool stacked = false;  ///< a tensor holds all experts of a layer, one after another
  GateUp gate_up = GateUp::kApart;
  bool transposed = false;       ///< matrices are [in, out]
  bool transposed_down = false;  ///< down alone is
  bool flat = false;             ///< stacked, as one matrix: the experts are its rows
  /// A checkpoint may also have a tensor for each matrix: EXPERTS.N.{gate,up,down}_proj.weight (expert_storage.h).
  bool perhaps_apart = false;
};

/// A parsed model and the map of its checkpoint.
struct ModelDescription {
  ModelSpec spec;
  std::vector<DenseTensor> dense;
  std::vector<ExpertTensors> experts;
  ExpertStorage storage = {};
  std::string head_name = "lm_head.weight";  ///< in the checkpoint
};

/// Builds the description from the text of config.json (and generation_config.json, may be empty). An unknown
/// architecture, a missing key, a key of the wrong type and an unsupported setting are errors that name it. Never
/// throws.
Result<ModelDescription> describe_model(const std::string& config_json, const std::string& generation_config_json);

/// The architectures that describe_model knows.
std::vector<std::string> known_architectures();

}  // namespace moestro::model

#include "tests/cuda/host_facing_ops.h"

#include <algorithm>

#include "common/check.h"

namespace moestro::kernels::test {
namespace {

/// Rows of q, k or v that a step has.
int64_t rows_of(std::span<const AttentionSequence> sequences) {
  int64_t rows = 0;
  for (const AttentionSequence& s : sequences) rows = std::max(rows, s.first_token + s.tokens);
  return rows;
}

}  // namespace

HostFacingOps::HostFacingOps(const MoestroCudaFunctions& functions, bool deterministic) : functions_(functions) {
  auto ops = cuda::CudaOps::create(functions, {.deterministic = deterministic});
  MOESTRO_CHECK(ops.is_ok(), ops.status().message());
  ops_ = std::move(*ops);
}

HostFacingOps::~HostFacingOps() = default;

void HostFacingOps::check(MoestroCudaResult result) const { MOESTRO_CHECK(result == 0, functions_.error_text(result)); }

void* HostFacingOps::copy(const void* host, void* back, uint64_t bytes) {
  if (host == nullptr || bytes == 0) return nullptr;
  void* device = nullptr;
  check(functions_.allocate(bytes, &device));
  check(functions_.copy_in(device, host, bytes, ops_->stream()));
  operands_.push_back({device, back, bytes});
  return device;
}

void HostFacingOps::finish() {
  for (const Operand& o : operands_)
    if (o.host != nullptr) check(functions_.copy_out(o.host, o.device, o.bytes, ops_->stream()));
  const Status status = ops_->wait();
  MOESTRO_CHECK(status.is_ok(), status.message());
  for (const Operand& o : operands_) check(functions_.release(o.device));
  operands_.clear();
}

Weight HostFacingOps::weight(const Weight& w) {
  Weight on_device = w;
  on_device.data = in(static_cast<const std::byte*>(w.data), w.rows * row_bytes(w.dtype, w.cols));
  on_device.parameters = in(w.parameters, w.rows * parameter_bytes(w.dtype, w.cols) / 2);
  return on_device;
}

KvView HostFacingOps::cache(const AttentionShape& shape, const KvView& view) {
  return {back(static_cast<std::byte*>(view.data), view.blocks * kv_block_bytes(shape, view.dtype)), view.dtype,
          view.blocks};
}

KvView HostFacingOps::cache(const LatentShape& shape, const KvView& view) {
  return {back(static_cast<std::byte*>(view.data), view.blocks * latent_block_bytes(shape, view.dtype)), view.dtype,
          view.blocks};
}

void HostFacingOps::matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y,
                           Activations activations) {
  ops_->matmul(in(x, n * w.cols), n, weight(w), in(bias, w.rows), back(y, n * w.rows), activations);
  finish();
}

void HostFacingOps::matmul_group(const float* x, int64_t n, std::span<const GroupProduct> products,
                                 Activations activations) {
  std::vector<Weight> weights;
  for (const GroupProduct& p : products) weights.push_back(weight(*p.weight));
  std::vector<GroupProduct> on_device;
  for (size_t i = 0; i < products.size(); ++i)
    on_device.push_back({&weights[i], in(products[i].bias, weights[i].rows), back(products[i].y, n * weights[i].rows)});
  ops_->matmul_group(in(x, n * weights.front().cols), n, on_device, activations);
  finish();
}

void HostFacingOps::matmul_onto(const float* x, int64_t n, const Weight& w, const float* bias, float* product,
                                float* y) {
  ops_->matmul_onto(in(x, n * w.cols), n, weight(w), in(bias, w.rows), back(product, n * w.rows), back(y, n * w.rows));
  finish();
}

void HostFacingOps::place_heads(const AttentionShape& shape, std::span<const AttentionSequence> sequences,
                                const HeadsToPlace& h, const KvView& view) {
  const int64_t rows = rows_of(sequences), numbers = rows * shape.heads * shape.head_dim,
                kv_numbers = rows * shape.kv_heads * shape.head_dim, angles = rows * h.rotary_dim / 2;
  ops_->place_heads(shape, sequences,
                    {.q = back(h.q, numbers),
                     .k = in(h.k, kv_numbers),
                     .v = in(h.v, kv_numbers),
                     .rotary_dim = h.rotary_dim,
                     .cos = in(h.cos, angles),
                     .sin = in(h.sin, angles),
                     .q_norm = in(h.q_norm, shape.head_dim),
                     .k_norm = in(h.k_norm, shape.head_dim),
                     .eps = h.eps,
                     .sink_q = back(h.sink_q, numbers),
                     .sink_cos = in(h.sink_cos, angles),
                     .sink_sin = in(h.sink_sin, angles)},
                    cache(shape, view));
  finish();
}

HostFacingOps::OnDevice HostFacingOps::queue_route(const RouteInput& r, const RouterSpec& spec, int32_t* ids,
                                                   float* weights) {
  OnDevice d{weight(r.router), spec, back(ids, r.n * spec.top_k), back(weights, r.n * spec.top_k),
             back(r.normed, r.n * r.hidden)};
  d.spec.bias = in(spec.bias, spec.experts);
  ops_->norm_route({.x = in(r.x, r.n * r.hidden),
                    .n = r.n,
                    .hidden = r.hidden,
                    .norm = in(r.norm, r.hidden),
                    .eps = r.eps,
                    .normed = d.normed,
                    .router = d.router,
                    .bias = in(r.bias, spec.experts),
                    .logits = back(r.logits, r.n * spec.experts)},
                   d.spec, d.ids, d.weights);
  return d;
}

void HostFacingOps::norm_route(const RouteInput& r, const RouterSpec& spec, int32_t* ids, float* weights) {
  queue_route(r, spec, ids, weights);
  finish();
}

void HostFacingOps::gather_rows(const Weight& table, std::span<const int32_t> ids, float* y) {
  ops_->gather_rows(weight(table), ids, back(y, static_cast<int64_t>(ids.size()) * table.cols));
  finish();
}

void HostFacingOps::rms_norm(const float* x, int64_t n, int64_t dim, const float* weight, float eps, float* y) {
  float* to = back(y, n * dim);
  ops_->rms_norm(x == y ? to : in(x, n * dim), n, dim, in(weight, dim), eps, to);
  finish();
}

void HostFacingOps::layer_norm(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias,
                               float eps, float* y) {
  float* to = back(y, n * dim);
  ops_->layer_norm(x == y ? to : in(x, n * dim), n, dim, in(weight, dim), in(bias, dim), eps, to);
  finish();
}

void HostFacingOps::sum_squares(const float* x, int64_t n, int64_t dim, float* sums) {
  ops_->sum_squares(in(x, n * dim), n, dim, back(sums, n));
  finish();
}

void HostFacingOps::rope(float* x, int64_t n, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                         const float* sin) {
  ops_->rope(back(x, n * heads * head_dim), n, heads, head_dim, rotary_dim, in(cos, n * rotary_dim / 2),
             in(sin, n * rotary_dim / 2));
  finish();
}

void HostFacingOps::kv_write(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* k,
                             const float* v, const KvView& view) {
  const int64_t numbers = rows_of(sequences) * shape.kv_heads * shape.head_dim;
  ops_->kv_write(shape, sequences, in(k, numbers), in(v, numbers), cache(shape, view));
  finish();
}

void HostFacingOps::attention(const AttentionShape& shape, std::span<const AttentionSequence> sequences, const float* q,
                              const float* sink_q, const KvView& view, float* out) {
  const int64_t numbers = rows_of(sequences) * shape.heads * shape.head_dim;
  AttentionShape on_device = shape;
  on_device.sink_logits = in(shape.sink_logits, shape.heads);
  ops_->attention(on_device, sequences, in(q, numbers), in(sink_q, numbers), cache(shape, view), back(out, numbers));
  finish();
}

void HostFacingOps::router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids, float* weights) {
  RouterSpec on_device = spec;
  on_device.bias = in(spec.bias, spec.experts);
  ops_->router_top_k(in(logits, n * spec.experts), n, on_device, back(ids, n * spec.top_k),
                     back(weights, n * spec.top_k));
  finish();
}

void HostFacingOps::expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                               std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& unit) {
  int64_t tokens = 0, outputs = 0;
  for (const RoutedRow& r : rows) {
    tokens = std::max<int64_t>(tokens, r.token + 1);
    outputs = std::max(outputs, r.token * top_k + r.rank + 1);
  }
  ops_->expert_ffn(layout, in(blob, layout.bytes()), in(x, tokens * layout.hidden()), rows, top_k,
                   back(out, outputs * layout.hidden()), unit);
  finish();
}

void HostFacingOps::combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden,
                            float* y) {
  ops_->combine(in(rows, n * top_k * hidden), in(weights, n * top_k), n, top_k, hidden, back(y, n * hidden));
  finish();
}

void HostFacingOps::silu_mul(float* gate, const float* up, int64_t count) {
  ops_->silu_mul(back(gate, count), in(up, count), count);
  finish();
}

void HostFacingOps::exponentials(const float* x, int64_t count, float shift, float factor, float* y) {
  float* to = back(y, count);
  ops_->exponentials(x == y ? to : in(x, count), count, shift, factor, to);
  finish();
}

void HostFacingOps::add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) {
  ops_->add_scaled(in(x, n * dim), in(logit, n), n, dim, back(y, n * dim));
  finish();
}

void HostFacingOps::scale(float* x, int64_t count, float factor) {
  ops_->scale(back(x, count), count, factor);
  finish();
}

void HostFacingOps::scale_rows(const float* x, const float* factors, int64_t n, int64_t each, int64_t dim, float* y) {
  float* to = back(y, n * each * dim);
  ops_->scale_rows(x == y ? to : in(x, n * dim), in(factors, n * each), n, each, dim, to);
  finish();
}

void HostFacingOps::clamp(float* x, int64_t count, float limit) {
  ops_->clamp(back(x, count), count, limit);
  finish();
}

void HostFacingOps::latent_write(const LatentShape& shape, std::span<const AttentionSequence> sequences,
                                 const float* kv, const float* norm, float eps, const float* cos, const float* sin,
                                 const KvView& view) {
  const int64_t rows = rows_of(sequences), angles = rows * shape.rope_dim / 2;
  ops_->latent_write(shape, sequences, in(kv, rows * (shape.kv_rank + shape.rope_dim)), in(norm, shape.kv_rank), eps,
                     in(cos, angles), in(sin, angles), cache(shape, view));
  finish();
}

void HostFacingOps::latent_attention(const LatentShape& shape, std::span<const AttentionSequence> sequences,
                                     const float* q, const float* cos, const float* sin, const Weight& kv_b,
                                     const KvView& view, float* out) {
  const int64_t rows = rows_of(sequences), angles = rows * shape.rope_dim / 2;
  ops_->latent_attention(shape, sequences, in(q, rows * shape.heads * shape.query_dim()), in(cos, angles),
                         in(sin, angles), weight(kv_b), cache(shape, view),
                         back(out, rows * shape.heads * shape.value_dim));
  finish();
}

/// Ids and x are on the device already.
void HostFacingOps::queue_experts(const cuda::LayerExperts& work, std::span<const std::vector<std::byte>> blobs) {
  std::vector<uint64_t> slots;
  for (const auto& blob : blobs)
    slots.push_back(reinterpret_cast<uint64_t>(in(blob.data(), static_cast<int64_t>(blob.size()))));
  ops_->experts({work.layout, in(slots.data(), work.experts), work.ids, in(work.left_out, work.n), work.n, work.experts,
                 work.top_k, work.x, back(work.out, work.n * work.top_k * work.layout.hidden()), work.sorted,
                 work.unit});
}

void HostFacingOps::experts(const cuda::LayerExperts& work, std::span<const std::vector<std::byte>> blobs) {
  queue_experts({work.layout, nullptr, in(work.ids, work.n * work.top_k), work.left_out, work.n, work.experts,
                 work.top_k, in(work.x, work.n * work.layout.hidden()), work.out, false, work.unit},
                blobs);
  finish();
}

void HostFacingOps::route_and_compute(const RouteInput& r, const RouterSpec& spec, int32_t* ids, float* weights,
                                      cuda::LayerExperts work, std::span<const std::vector<std::byte>> blobs) {
  const OnDevice d = queue_route(r, spec, ids, weights);
  work.ids = d.ids, work.x = d.normed, work.sorted = cuda::CudaOps::sorts_routes(work.n);
  queue_experts(work, blobs);
  finish();
}

void HostFacingOps::residual(const MoestroCudaResidual& r) {
  const int64_t numbers = r.n * r.hidden;
  MoestroCudaResidual d = r;
  d.y = back(r.y, numbers);
  d.base = r.base == r.y ? d.y : in(r.base, numbers);
  d.rows = in(r.rows, numbers * r.top_k), d.weights = in(r.weights, r.n * r.top_k);
  d.added = in(r.added, numbers), d.added_logit = in(r.added_logit, r.n);
  d.bad_layer = back(r.bad_layer, r.n);
  d.norm = in(r.norm, r.hidden), d.normed = back(r.normed, numbers);
  d.norm_bias = in(r.norm_bias, r.hidden);
  ops_->residual(d);
  finish();
}

void HostFacingOps::guard(float* x, int64_t n, int64_t dim, int32_t layer, int32_t* bad_layer) {
  ops_->guard(back(x, n * dim), n, dim, layer, back(bad_layer, n));
  finish();
}

void HostFacingOps::sample(const float* logits, int64_t n, int64_t vocabulary, std::span<const MoestroCudaSampling> how,
                           int32_t* ids) {
  ops_->sample(in(logits, n * vocabulary), n, vocabulary, how, back(ids, n));
  finish();
}

void HostFacingOps::sort_routes(const MoestroCudaSortRoutes& work) {
  const int64_t pairs = work.n * work.top_k;
  const MoestroCudaSortRoutes on_device{in(work.ids, pairs),
                                        in(work.left_out, work.n),
                                        work.n,
                                        work.top_k,
                                        work.experts,
                                        back(work.offsets, work.experts + 1),
                                        back(work.active, std::min(work.experts, pairs)),
                                        back(work.sorted, pairs),
                                        back(work.counts, MOESTRO_CUDA_ROUTE_RUNS * work.experts)};
  check(functions_.ops.sort_routes(&on_device, ops_->stream()));
  finish();
}

void HostFacingOps::gated_delta(const DeltaShape& shape, std::span<const AttentionSequence> sequences,
                                const DeltaInput& input, float* states, float* out) {
  gated_delta_keeping(shape, sequences, input, states, out, {}, 0);
}

void HostFacingOps::gated_delta_keeping(const DeltaShape& shape, std::span<const AttentionSequence> sequences,
                                        const DeltaInput& input, float* states, float* out,
                                        cuda::CudaOps::KeptStates kept, int64_t kept_floats) {
  const int64_t rows = rows_of(sequences), keys = rows * shape.keys(), values = rows * shape.values(),
                gates = rows * shape.value_heads;
  int64_t slots = 0;
  for (const AttentionSequence& s : sequences) {
    if (s.first_position > 0) slots = std::max<int64_t>(slots, s.state + 1);
    for (const StateWrite& w : s.states) slots = std::max<int64_t>(slots, w.slot + 1);
  }
  ops_->keep_states({back(kept.states, kept_floats), kept.again});
  ops_->gated_delta(shape, sequences,
                    {.q = const_cast<float*>(in(input.q, keys)),  // they are only read
                     .k = const_cast<float*>(in(input.k, keys)),
                     .v = const_cast<float*>(in(input.v, values)),
                     .a = in(input.a, gates),
                     .b = in(input.b, gates),
                     .conv = in(input.conv, shape.channels() * shape.conv),
                     .a_log = in(input.a_log, shape.value_heads),
                     .dt_bias = in(input.dt_bias, shape.value_heads)},
                    back(states, slots * delta_state_floats(shape)), back(out, values));
  ops_->keep_states({});
  finish();
}

void HostFacingOps::gated_norm(float* x, int64_t n, int64_t dim, const float* weight, float eps, float* gate) {
  ops_->gated_norm(back(x, n * dim), n, dim, in(weight, dim), eps, back(gate, n * dim));
  finish();
}

void HostFacingOps::sigmoid_mul(float* x, const float* gate, int64_t count) {
  ops_->sigmoid_mul(back(x, count), in(gate, count), count);
  finish();
}

}  // namespace moestro::kernels::test

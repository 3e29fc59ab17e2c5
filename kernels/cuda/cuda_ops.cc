#include "kernels/cuda/cuda_ops.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace moestro::kernels::cuda {
namespace {

static_assert(static_cast<int>(DType::kF32) == MOESTRO_CUDA_F32 &&
              static_cast<int>(DType::kBF16) == MOESTRO_CUDA_BF16 &&
              static_cast<int>(DType::kF16) == MOESTRO_CUDA_F16 &&
              static_cast<int>(DType::kInt8) == MOESTRO_CUDA_INT8 &&
              static_cast<int>(DType::kInt4) == MOESTRO_CUDA_INT4 &&
              static_cast<int>(DType::kQ4_0) == MOESTRO_CUDA_Q4_0 &&
              static_cast<int>(DType::kMixed) == MOESTRO_CUDA_MIXED &&
              static_cast<int>(DType::kNVFP4) == MOESTRO_CUDA_NVFP4);
static_assert(sizeof(RoutedRow) == sizeof(MoestroCudaRoutedRow) &&
              offsetof(RoutedRow, rank) == offsetof(MoestroCudaRoutedRow, rank));

MoestroCudaTile tile_of(const ExpertTile& t) {
  return {t.ffn, t.gate, t.up, t.down, t.gate_scales, t.up_scales, t.down_scales};
}

MoestroCudaExpertLayout layout_of(const ExpertLayout& layout) {
  MoestroCudaExpertLayout l{};
  l.hidden = layout.hidden();
  l.ffn = layout.ffn();
  l.tile_ffn = layout.tile_ffn();
  l.tiles = layout.tiles();
  l.dtype = static_cast<int32_t>(layout.dtype());
  l.gate_dtype = static_cast<int32_t>(layout.formats().gate);
  l.up_dtype = static_cast<int32_t>(layout.formats().up);
  l.down_dtype = static_cast<int32_t>(layout.formats().down);
  l.full = tile_of(layout.tile(0));
  l.last = tile_of(layout.tile(layout.tiles() - 1));
  l.tile_bytes = layout.tiles() > 1 ? layout.tile(1).offset : 0;
  return l;
}

MoestroCudaGatedUnit unit_of(const GatedUnit& unit) {
  MOESTRO_CHECK(unit.kind != GatedUnit::Kind::kRelu, "experts with a gate (supports_encoders)");
  return {unit.kind == GatedUnit::Kind::kClampedSwiglu, unit.alpha, unit.limit};
}

MoestroCudaExpertBiases biases_of(const ExpertLayout& layout) {
  if (!layout.has_bias()) return {};
  const ExpertBiases at = layout.biases();
  return {at.gate, at.up, at.down};
}

/// A product in f32 of as many tokens costs what reading the weights costs; with more, tensor cores are faster. Those
/// have kernels for few and for many tokens: few_tokens.h says which are used.
constexpr int64_t kFewTokens = 1;

/// A product with few blocks is cut into at most as many parts of its columns, within this memory.
constexpr int64_t kColumnPartsMax = 16, kSumsBytesMax = int64_t{16} << 20;

bool rounds(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kMixed || is_quantised(dtype) ||
         is_blocks(dtype);
}

/// One expert's call: what the kernels read of it, in one array.
struct ExpertCall {
  uint64_t slot = 0;
  int32_t offsets[2] = {0, 0};
  int32_t active = 0;
  int32_t padding = 0;
};
static_assert(sizeof(ExpertCall) == 24);

}  // namespace

CudaOps::CudaOps(const MoestroCudaFunctions& functions, OpsOptions options)
    : options_(std::move(options)),
      delta_in_chunks_(asks_for_delta_chunks() && !options_.deterministic),
      queue_(functions) {}

CudaOps::~CudaOps() {
  if (queue_.stream != nullptr) (void)queue_.functions.wait_stream(queue_.stream);
}

Result<std::unique_ptr<CudaOps>> CudaOps::create(const MoestroCudaFunctions& functions, OpsOptions options) {
  options.isa = Isa::kScalar;
  options.threads = 1;
  std::unique_ptr<CudaOps> ops(new CudaOps(functions, std::move(options)));
  ops->queue_.note("make_stream", functions.make_stream(1, &ops->queue_.stream));
  constexpr uint64_t kCounterBytes = MOESTRO_CUDA_ROUTE_ROWS * sizeof(uint32_t);
  if (void* counters = ops->counters_.at_least(kCounterBytes))
    ops->queue_.note("fill", functions.fill(counters, 0, kCounterBytes, ops->queue_.stream));
  MOESTRO_RETURN_IF_ERROR(ops->status());
  return ops;
}

Status CudaOps::status() const {
  if (queue_.error == 0) return Status::ok();
  const std::string what = "CUDA: " + std::string(queue_.failed) + ": " + queue_.functions.error_text(queue_.error);
  return queue_.error == MOESTRO_CUDA_REFUSED ? unsupported(what) : unavailable(what);
}

Status CudaOps::wait() {
  if (fine()) queue_.note("wait_stream", queue_.functions.wait_stream(queue_.stream));
  return status();
}

bool CudaOps::on_tensor_cores(int64_t tokens, DType weights) const {
  return !options_.deterministic && tokens > kFewTokens && rounds(weights);
}

void CudaOps::matmul(const float* x, int64_t n, const Weight& w, const float* bias, float* y, Activations activations) {
  const bool rounded = activations == Activations::kRounded && on_tensor_cores(n, w.dtype);
  MoestroCudaMatmul a{};
  a.x = x;
  a.n = n, a.rows = w.rows, a.cols = w.cols;
  a.weight = w.data;
  a.parameters = w.parameters;
  a.dtype = static_cast<int32_t>(w.dtype);
  a.bias = bias;
  a.y = y;
  if (rounded) {
    a.rounded = 1;
    a.rounded_x = rounded_room(n, w.cols);
    a.partial_bytes = sums_bytes(n, w.rows);
    a.partial = static_cast<float*>(sums_.at_least(static_cast<uint64_t>(a.partial_bytes)));
  }
  if (fine()) queue_.note("matmul", ops().matmul(&a, queue_.stream));
}

void CudaOps::gather_rows(const Weight& table, std::span<const int32_t> ids, float* y) {
  for (const int32_t id : ids) MOESTRO_CHECK(id >= 0 && id < table.rows, "row of a table");
  const MoestroCudaGather a{
      table.data, static_cast<int32_t>(table.dtype), table.cols, static_cast<int64_t>(ids.size()), ids_.of(ids), y};
  if (fine()) queue_.note("gather_rows", ops().gather(&a, queue_.stream));
}

void CudaOps::rms_norm(const float* x, int64_t n, int64_t dim, const float* weight, float eps, float* y) {
  const MoestroCudaNorm a{x, n, dim, weight, nullptr, eps, 0, y};
  if (fine()) queue_.note("rms_norm", ops().norm(&a, queue_.stream));
}

void CudaOps::layer_norm(const float* x, int64_t n, int64_t dim, const float* weight, const float* bias, float eps,
                         float* y) {
  const MoestroCudaNorm a{x, n, dim, weight, bias, eps, 1, y};
  if (fine()) queue_.note("layer_norm", ops().norm(&a, queue_.stream));
}

void CudaOps::sum_squares(const float* x, int64_t n, int64_t dim, float* sums) {
  // Only the guard writes x.
  const MoestroCudaSumSquares a{const_cast<float*>(x), n, dim, sums, nullptr, 0};
  if (fine()) queue_.note("sum_squares", ops().sum_squares(&a, queue_.stream));
}

void CudaOps::guard(float* x, int64_t n, int64_t dim, int32_t layer, int32_t* bad_layer) {
  const MoestroCudaSumSquares a{x, n, dim, nullptr, bad_layer, layer};
  if (fine()) queue_.note("guard", ops().sum_squares(&a, queue_.stream));
}

void CudaOps::sample(const float* logits, int64_t n, int64_t vocabulary, std::span<const MoestroCudaSampling> how,
                     int32_t* ids) {
  MOESTRO_CHECK(how.empty() || static_cast<int64_t>(how.size()) == n, "one way of drawing a row");
  const MoestroCudaSampling* ways = sampling_.of(how);
  const MoestroCudaSample a{logits, n, vocabulary, ways, ids, drawn_.at_least(static_cast<uint64_t>(sample_bytes(n)))};
  if (fine()) queue_.note("sample", ops().sample(&a, queue_.stream));
}

int64_t CudaOps::sample_bytes(int64_t n) { return n * MOESTRO_CUDA_SAMPLE_ROW_BYTES; }

void CudaOps::reserve_sampling(int64_t n) { drawn_.at_least(static_cast<uint64_t>(sample_bytes(n))); }

void CudaOps::rope(float* x, int64_t n, int64_t heads, int64_t head_dim, int64_t rotary_dim, const float* cos,
                   const float* sin) {
  const MoestroCudaRope a{x, n, heads, head_dim, rotary_dim, cos, sin};
  if (fine()) queue_.note("rope", ops().rope(&a, queue_.stream));
}

void CudaOps::expert_ffn(const ExpertLayout& layout, const std::byte* blob, const float* x,
                         std::span<const RoutedRow> rows, int64_t top_k, float* out, const GatedUnit& unit) {
  if (rows.empty()) return;
  ExpertCall call;
  call.slot = reinterpret_cast<uint64_t>(blob);
  call.offsets[1] = static_cast<int32_t>(rows.size());
  expert_call_.resize(sizeof call + rows.size_bytes());
  std::memcpy(expert_call_.data(), &call, sizeof call);
  std::memcpy(expert_call_.data() + sizeof call, rows.data(), rows.size_bytes());
  const std::byte* sent = expert_calls_.of(std::span<const std::byte>(expert_call_));
  const auto tokens = static_cast<int64_t>(rows.size());
  MoestroCudaExperts a{};
  a.activated = static_cast<float*>(activated_.at_least(static_cast<uint64_t>(activated_bytes(tokens, layout.ffn()))));
  a.layout = layout_of(layout);
  a.unit = unit_of(unit), a.biases = biases_of(layout);
  a.slots = reinterpret_cast<const uint64_t*>(sent);
  a.offsets = reinterpret_cast<const int32_t*>(sent + offsetof(ExpertCall, offsets));
  a.active = reinterpret_cast<const int32_t*>(sent + offsetof(ExpertCall, active));
  a.sorted = reinterpret_cast<const MoestroCudaRoutedRow*>(sent + sizeof call);
  a.active_max = 1;
  a.top_k = top_k;
  a.x = x;
  a.out = out;
  if (on_tensor_cores(tokens, layout.dtype())) {
    a.rounded_tokens = a.rows = tokens;
    for (const RoutedRow& row : rows) a.x_rows = std::max<int64_t>(a.x_rows, row.token + 1);
    auto* tiles = routes_.at_least(static_cast<uint64_t>(token_tiles(tokens, 1)) * sizeof(MoestroCudaTokenTile));
    a.token_tiles = static_cast<MoestroCudaTokenTile*>(tiles);
    a.rounded_x = rounded_room(std::max(a.x_rows, a.rows), layout.hidden());
    a.rounded_activated = reinterpret_cast<uint16_t*>(a.activated);
  }
  if (!fine()) return;
  queue_.note("expert_ffn", ops().experts(&a, queue_.stream));
}

int64_t CudaOps::activated_bytes(int64_t n, int64_t ffn) {
  return std::max(n * ffn * static_cast<int64_t>(sizeof(float)), rounded_bytes(n, ffn));
}

int64_t CudaOps::rounded_bytes(int64_t n, int64_t cols) {
  return n * round_up(cols, MOESTRO_CUDA_ROUNDED_COLUMNS) * static_cast<int64_t>(sizeof(uint16_t));
}

int64_t CudaOps::sums_bytes(int64_t n, int64_t rows) {
  return std::min(kSumsBytesMax, kColumnPartsMax * n * rows * static_cast<int64_t>(sizeof(float)));
}

uint16_t* CudaOps::rounded_room(int64_t n, int64_t cols) {
  return static_cast<uint16_t*>(rounded_.at_least(static_cast<uint64_t>(rounded_bytes(n, cols))));
}

void CudaOps::reserve(const Room& room) {
  parts_max_ = room.positions / MOESTRO_CUDA_ATTENTION_PART + 1;
  activated_.at_least(static_cast<uint64_t>(room.activated));
  routes_.at_least(static_cast<uint64_t>(room.routes));
  partial_.at_least(static_cast<uint64_t>(room.partial));
  rounded_.at_least(static_cast<uint64_t>(room.rounded));
  sums_.at_least(static_cast<uint64_t>(room.sums));
  prepared_.at_least(static_cast<uint64_t>(room.delta));
  latents_.at_least(static_cast<uint64_t>(room.latents));
}

void CudaOps::experts(const LayerExperts& w) {
  const int64_t pairs = w.n * w.top_k;
  if (pairs == 0) return;
  RoutesRoom routes = routes_room(w.ids, w.n, w.top_k, w.experts);
  routes.sort.left_out = w.left_out;
  MoestroCudaExperts a{};
  a.activated =
      static_cast<float*>(activated_.at_least(static_cast<uint64_t>(activated_bytes(pairs, w.layout.ffn()))));
  a.layout = layout_of(w.layout);
  a.unit = unit_of(w.unit), a.biases = biases_of(w.layout);
  a.slots = w.slots;
  a.active_max = std::min(w.experts, pairs);
  a.top_k = w.top_k;
  a.x = w.x;
  a.out = w.out;
  if (on_tensor_cores(w.n, w.layout.dtype())) {
    a.rounded_tokens = a.x_rows = w.n;
    a.rows = pairs;
    a.rounded_x = rounded_room(pairs, w.layout.hidden());
    a.rounded_activated = reinterpret_cast<uint16_t*>(a.activated);
  }
  if (!fine()) return;
  if (!w.sorted && !queue_.note("sort_routes", ops().sort_routes(&routes.sort, queue_.stream))) return;
  a.token_tiles = routes.tiles;
  a.sorted = routes.sort.sorted;
  a.offsets = routes.sort.offsets;
  a.active = routes.sort.active;
  queue_.note("experts", ops().experts(&a, queue_.stream));
}

void CudaOps::combine(const float* rows, const float* weights, int64_t n, int64_t top_k, int64_t hidden, float* y) {
  combine_onto(y, rows, weights, n, top_k, hidden, y);
}

void CudaOps::combine_onto(const float* base, const float* rows, const float* weights, int64_t n, int64_t top_k,
                           int64_t hidden, float* y) {
  const MoestroCudaCombine a{rows, weights, n, top_k, hidden, base, y};
  if (fine()) queue_.note("combine", ops().combine(&a, queue_.stream));
}

void CudaOps::silu_mul(float* gate, const float* up, int64_t count) {
  const MoestroCudaSiluMul a{gate, up, count};
  if (fine()) queue_.note("silu_mul", ops().silu_mul(&a, queue_.stream));
}

void CudaOps::exponentials(const float* x, int64_t count, float shift, float factor, float* y) {
  const MoestroCudaExponentials a{x, count, shift, factor, y};
  if (fine()) queue_.note("exponentials", ops().exponentials(&a, queue_.stream));
}

void CudaOps::add_scaled(const float* x, const float* logit, int64_t n, int64_t dim, float* y) {
  const MoestroCudaAddScaled a{x, logit, n, dim, y};
  if (fine()) queue_.note("add_scaled", ops().add_scaled(&a, queue_.stream));
}

void CudaOps::scale(float* x, int64_t count, float factor) {
  const MoestroCudaScaleRows a{x, 1, 1, count, factor, nullptr, x};
  if (fine() && count > 0) queue_.note("scale", ops().scale_rows(&a, queue_.stream));
}

void CudaOps::scale_rows(const float* x, const float* factors, int64_t n, int64_t each, int64_t dim, float* y) {
  const MoestroCudaScaleRows a{x, n, each, dim, 1.0f, factors, y};
  if (fine()) queue_.note("scale_rows", ops().scale_rows(&a, queue_.stream));
}

void CudaOps::clamp(float* x, int64_t count, float limit) {
  const MoestroCudaClamp a{x, count, limit};
  if (fine()) queue_.note("clamp", ops().clamp(&a, queue_.stream));
}

}  // namespace moestro::kernels::cuda

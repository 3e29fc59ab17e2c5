// CudaOps: routers, and what is one launch where other backends have several operations.

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/cuda_ops.h"

namespace moestro::kernels::cuda {
namespace {

static_assert(static_cast<int>(RouterSpec::Scores::kSoftmax) == MOESTRO_CUDA_SOFTMAX &&
              static_cast<int>(RouterSpec::Scores::kSigmoid) == MOESTRO_CUDA_SIGMOID &&
              static_cast<int>(RouterSpec::Scores::kSparseMixer) == MOESTRO_CUDA_SPARSE_MIXER);

MoestroCudaRouter router_of(const float* logits, int64_t n, const RouterSpec& s, int32_t* ids, float* weights) {
  MOESTRO_CHECK(s.top_k >= 1 && s.top_k <= s.experts && s.groups >= 1 && s.experts % s.groups == 0 && s.group_best >= 1,
                "a router's shape");
  MOESTRO_CHECK(s.groups_kept >= 1 && s.groups_kept <= s.groups && s.groups_kept * (s.experts / s.groups) >= s.top_k,
                "the kept groups hold top-k experts");
  MOESTRO_CHECK(s.scores != RouterSpec::Scores::kSparseMixer || (s.top_k == 2 && s.groups == 1 && !s.bias),
                "SparseMixer chooses two, by logits alone");
  MoestroCudaRouter a{};
  a.logits = logits, a.n = n, a.experts = s.experts, a.top_k = s.top_k;
  a.scores = static_cast<int32_t>(s.scores), a.jitter = s.jitter;
  a.normalise = s.normalise, a.scale = s.scale, a.bias = s.bias;
  a.groups = s.groups, a.groups_kept = s.groups_kept, a.group_best = s.group_best;
  a.ids = ids, a.weights = weights;
  return a;
}

}  // namespace

int64_t CudaOps::routes_bytes(int64_t n, int64_t top_k, int64_t experts) {
  const int64_t pairs = n * top_k, active_max = std::min(experts, pairs);
  return token_tiles(pairs, active_max) * static_cast<int64_t>(sizeof(MoestroCudaTokenTile)) +
         pairs * static_cast<int64_t>(sizeof(RoutedRow)) +
         (experts + 1 + active_max + MOESTRO_CUDA_ROUTE_RUNS * experts) * static_cast<int64_t>(sizeof(int32_t));
}

CudaOps::RoutesRoom CudaOps::routes_room(const int32_t* ids, int64_t n, int64_t top_k, int64_t experts) {
  const int64_t pairs = n * top_k, active_max = std::min(experts, pairs);
  auto* tiles = static_cast<MoestroCudaTokenTile*>(
      routes_.at_least(static_cast<uint64_t>(routes_bytes(n, top_k, experts))));
  if (tiles == nullptr) return {};
  auto* sorted = reinterpret_cast<MoestroCudaRoutedRow*>(tiles + token_tiles(pairs, active_max));
  auto* offsets = reinterpret_cast<int32_t*>(sorted + pairs);
  int32_t* const active = offsets + experts + 1;
  auto* counts = reinterpret_cast<uint32_t*>(active + active_max);
  return {{ids, nullptr, n, top_k, experts, offsets, active, sorted, counts}, tiles};
}

void CudaOps::router_top_k(const float* logits, int64_t n, const RouterSpec& spec, int32_t* ids, float* weights) {
  const MoestroCudaRouter a = router_of(logits, n, spec, ids, weights);
  if (fine()) queue_.note("router_top_k", ops().router(&a, queue_.stream));
}

void CudaOps::norm_route(const RouteInput& in, const RouterSpec& spec, int32_t* ids, float* weights) {
  MOESTRO_CHECK(fuses(in.router) && in.router.rows == spec.experts && in.router.cols == in.hidden, "such a router");
  if (in.n == 0) return;
  MoestroCudaRoute a{};
  a.x = in.x, a.n = in.n, a.hidden = in.hidden;
  a.norm = in.norm, a.eps = in.eps, a.normed = in.normed;
  a.weight = static_cast<const float*>(in.router.data), a.bias = in.bias;
  a.logits = in.logits;
  a.choice = router_of(in.logits, in.n, spec, ids, weights);
  a.sort = routes_room(ids, in.n, spec.top_k, spec.experts).sort;
  a.counters = static_cast<uint32_t*>(counters_.at_least(1));
  if (fine()) queue_.note("route", ops().route(&a, queue_.stream));
}

void CudaOps::residual(const MoestroCudaResidual& work) {
  if (fine() && work.n > 0) queue_.note("residual", ops().residual(&work, queue_.stream));
}

void CudaOps::matmul_group(const float* x, int64_t n, std::span<const GroupProduct> products, Activations activations) {
  const Weight& first = *products.front().weight;
  const bool rounded = activations == Activations::kRounded && on_tensor_cores(n, first.dtype);
  const bool alike = std::ranges::all_of(products, [&](const GroupProduct& p) {
    return p.weight->dtype == first.dtype && p.weight->cols == first.cols;
  });
  if ((rounded && n > MOESTRO_CUDA_GROUP_ROUNDED) || !alike || products.size() > MOESTRO_CUDA_GROUP_MOST)
    return Ops::matmul_group(x, n, products, activations);
  MoestroCudaMatmulGroup a{};
  a.x = x, a.n = n, a.cols = first.cols;
  a.dtype = static_cast<int32_t>(first.dtype), a.rounded = rounded;
  for (const GroupProduct& p : products)
    a.matrices[a.count++] = {p.weight->data, p.weight->parameters, p.weight->rows, p.bias, p.y};
  if (fine() && n > 0) queue_.note("matmul_group", ops().matmul_group(&a, queue_.stream));
}

void CudaOps::matmul_onto(const float* x, int64_t n, const Weight& w, const float* bias, float* product, float* y) {
  const bool rounded = on_tensor_cores(n, w.dtype);
  if (rounded && n > MOESTRO_CUDA_GROUP_ROUNDED) return Ops::matmul_onto(x, n, w, bias, product, y);
  MoestroCudaMatmulGroup a{};
  a.x = x, a.n = n, a.cols = w.cols;
  a.dtype = static_cast<int32_t>(w.dtype), a.rounded = rounded;
  a.onto = 1, a.count = 1;
  a.matrices[0] = {w.data, w.parameters, w.rows, bias, y};
  if (fine() && n > 0) queue_.note("matmul_onto", ops().matmul_group(&a, queue_.stream));
}

}  // namespace moestro::kernels::cuda

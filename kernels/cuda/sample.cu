// From a row of logits to a token, as services/worker/engine/sampler.cc says. Several blocks read a row, a slice each,
// once for the best candidate, once for how many candidates, or what weights, lie how far from it, and once to list
// those that may be drawn. One block a row then draws among these few. Weights are summed as integers, so in any order:
// sums differ from the host's by what its exponential is off, and 2^-44 of the best one's weight for each candidate.
//
// A list that would be too long (many equal logits, a nearly flat row) is not made: the last block then searches the
// whole row, which takes it far longer.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/philox.h"
#include "kernels/cuda/sample_search.h"

namespace moestro::kernels::cuda {
namespace drawing {
namespace {

__device__ RowRoom& room_of(const MoestroCudaSample& a, int64_t row) {
  return static_cast<RowRoom*>(a.workspace)[row];
}
__host__ __device__ int64_t slices_of(const MoestroCudaSample& a) {
  return divided_up(a.vocabulary, kSlice);
}

/// The best candidate of each slice, and an empty row's room. Grid: slices, rows.
__global__ void __launch_bounds__(kThreads) best_kernel(MoestroCudaSample a) {
  auto* keys = reinterpret_cast<RankKey*>(shared_memory());
  const int64_t slice = blockIdx.x, row = blockIdx.y;
  SliceOfThread mine;
  mine.load(a.logits + row * a.vocabulary, a.vocabulary, slice);
  RowRoom& room = room_of(a, row);
  if (a.how != nullptr) {
    for (unsigned i = blockIdx.x * kThreads + threadIdx.x; i < kBins; i += gridDim.x * kThreads) {
      room.weights[i] = 0;
      room.counts[i] = 0;
    }
    if (slice == 0 && threadIdx.x == 0) room.few_count = 0;
  }
  float best = -INFINITY;
  int64_t best_id = 0;
  bool finite = true;
  MOESTRO_UNROLL
  for (int i = 0; i < kOfThread; ++i) {
    const int64_t id = SliceOfThread::id(slice, i);
    if (mine.logits[i] > best) best = mine.logits[i], best_id = id;
    finite = finite && (id >= a.vocabulary || isfinite(mine.logits[i]));
  }
  // A thread behind the row's end has what is worse than any candidate.
  const RankKey key = block_best(finite ? key_of(best, best_id) : 0, keys);
  if (threadIdx.x == 0) room.best[slice] = key;
}

__global__ void __launch_bounds__(kThreads) likeliest_kernel(MoestroCudaSample a) {
  const RankKey best = row_best(room_of(a, blockIdx.x), slices_of(a), reinterpret_cast<RankKey*>(shared_memory()));
  if (threadIdx.x == 0) a.ids[blockIdx.x] = best == 0 ? -1 : static_cast<int32_t>(id_of(best));
}

/// What a slice adds to the row's bins, or, where all candidates can be drawn, its sum. Grid: slices, rows.
__global__ void __launch_bounds__(kThreads) bins_kernel(MoestroCudaSample a) {
  SearchRoom& search = *reinterpret_cast<SearchRoom*>(shared_memory());
  const int64_t slice = blockIdx.x, number = blockIdx.y;
  const MoestroCudaSampling how = a.how[number];
  const Way way = way_of(how, a.vocabulary);
  if (way == Way::kBest) return;
  SliceOfThread mine;
  mine.load(a.logits + number * a.vocabulary, a.vocabulary, slice);
  RowRoom& room = room_of(a, number);
  search.bins.clear();
  const RankKey best = row_best(room, slices_of(a), search.best);
  if (best == 0) return;
  const Row row = row_of(a, number, best, how);
  Fixed sum = 0;
  MOESTRO_UNROLL
  for (int i = 0; i < kOfThread; ++i) {
    const int bin = row.bin(mine.logits[i]);
    if (bin == kBins) continue;
    if (way == Way::kByCount) {
      search.bins.count(static_cast<unsigned>(bin));
      continue;
    }
    const float weight = row.weight(mine.logits[i]);
    if (way == Way::kByWeight)
      search.bins.add(static_cast<unsigned>(bin), fixed_of(weight));
    else if (weight >= how.min_p)
      sum += fixed_of(weight);
  }
  if (way == Way::kAll) {
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kWholeWarp, sum, step);
    if (lane_id() == 0) search.of_warps[warp_id()] = {sum, 0};
  }
  __syncthreads();
  if (way == Way::kAll) {
    if (threadIdx.x != 0) return;
    for (int w = 1; w < kWarps; ++w) sum += search.of_warps[w].weight;
    room.sums[slice] = sum;
    return;
  }
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kThreads) {
    if (search.bins.counts[bin] == 0) continue;
    atomicAdd(&room.counts[bin], search.bins.counts[bin]);
    if (way == Way::kByWeight) atomicAdd(&room.weights[bin], search.bins.weight(bin));
  }
}

__device__ Fixed share_of(double share, Fixed of) {
  return at_most(at_least(static_cast<Fixed>(ceil(share * static_cast<double>(of))), Fixed{1}), of);
}

/// The candidates that the row's bins leave: all up to the bin of the cut, or, if it is not reached, all with a weight.
struct Left {
  int last_bin;
  bool is_reached;
  int64_t count;
  Fixed total;  ///< weight of all bins; only of Way::kByWeight
};

__device__ Left left_of(const RowRoom& of, const MoestroCudaSampling& how, Way way, SearchRoom& room) {
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kThreads) room.bins.set(bin, of.counts[bin], of.weights[bin]);
  __syncthreads();
  const Prefix prefix = prefix_of(room);
  const Target target{way == Way::kByCount,
                      way == Way::kByCount ? static_cast<Fixed>(how.top_k) : share_of(how.top_p, prefix.all.weight)};
  const FoundBin found = find_bin(room, prefix, target);
  return {static_cast<int>(at_most(found.bin, unsigned{kBins - 1})), found.bin < kBins,
          int64_t{found.before.count} + found.of_it.count, prefix.all.weight};
}

/// Lists the row's candidates, if they are few. Grid: slices, rows.
__global__ void __launch_bounds__(kThreads, 2) list_kernel(MoestroCudaSample a) {
  SearchRoom& search = *reinterpret_cast<SearchRoom*>(shared_memory());
  auto* listed = reinterpret_cast<uint16_t*>(shared_memory() + sizeof(SearchRoom));
  const int64_t slice = blockIdx.x, number = blockIdx.y;
  const MoestroCudaSampling how = a.how[number];
  const Way way = way_of(how, a.vocabulary);
  if (way != Way::kByCount && way != Way::kByWeight) return;
  SliceOfThread mine;
  mine.load(a.logits + number * a.vocabulary, a.vocabulary, slice);
  RowRoom& room = room_of(a, number);
  const RankKey best = row_best(room, slices_of(a), search.best);
  if (best == 0) return;
  const Left left = left_of(room, how, way, search);
  if (left.count > kFew) return;
  if (threadIdx.x == 0) search.last_count = 0;
  __syncthreads();
  const Row row = row_of(a, number, best, how);
  MOESTRO_UNROLL
  for (int i = 0; i < kOfThread; ++i)
    if (row.bin(mine.logits[i]) <= left.last_bin)
      listed[atomicAdd(&search.last_count, 1u)] = static_cast<uint16_t>(SliceOfThread::id(0, i));
  __syncthreads();
  const uint32_t count = search.last_count;
  if (threadIdx.x == 0) search.found.bin = atomicAdd(&room.few_count, count);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < count; i += kThreads) {
    const int64_t id = slice * kSlice + listed[i];
    room.few[search.found.bin + i] = key_of(row.logits[id], id);
  }
}

/// Which weight, of all that can be drawn, this position's share falls on; 0: there is none.
__device__ Fixed drawn_weight(const MoestroCudaSampling& how, Fixed total) {
  const double share = uniform_at(how.seed, how.choice, static_cast<uint32_t>(how.position));
  return at_most(static_cast<Fixed>(share * static_cast<double>(total)) + 1, total);
}

/// Among all candidates: in the slice that the share falls on.
__device__ RankKey draw_of_all(const RowRoom& of, int64_t slices, const Row& row, const MoestroCudaSampling& how,
                               RankKey best, SearchRoom& room) {
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kThreads) room.bins.set(bin, 1, bin < slices ? of.sums[bin] : 0);
  __syncthreads();
  const Prefix prefix = prefix_of(room);
  const Fixed amount = drawn_weight(how, prefix.all.weight);
  if (amount == 0) return best;
  const FoundBin found = find_bin(room, prefix, {false, amount});
  const int64_t first = found.bin * kSlice;
  const Source slice{nullptr, first, at_most(kSlice, row.vocabulary - first)};
  constexpr int kSliceBits = 13;
  static_assert(int64_t{1} << kSliceBits == kSlice);
  return search(row, slice, ById{first, row, 0, how.min_p}, {false, amount - found.before.weight}, kSliceBits, room)
      .key;
}

__device__ RankKey draw_of_few(const RowRoom& of, const Row& row, const MoestroCudaSampling& how, Way way, RankKey best,
                               SearchRoom& room) {
  const Left left = left_of(of, how, way, room);
  const bool is_list = left.count <= kFew;
  const Source source{is_list ? of.few : nullptr, 0, is_list ? left.count : row.vocabulary};
  const ByRank ranks{best, row};
  const int bits = offset_bits(row, source, ranks, room);
  Cut kept{0, left.total};
  if (way == Way::kByCount) {
    if (left.is_reached || !is_list)
      kept = search(row, source, ranks, {true, static_cast<Fixed>(how.top_k)}, bits, room);
    else if (how.top_p < 1.0f)
      kept.weight = total_weight(row, source, ranks, room);
  }
  if (how.top_p < 1.0f) kept = search(row, source, ranks, {false, share_of(how.top_p, kept.weight)}, bits, room);
  const ById drawn{0, row, kept.key, how.min_p};
  const Fixed amount = drawn_weight(how, total_weight(row, source, drawn, room));
  if (amount == 0) return best;
  int id_bits = 1;
  while (row.vocabulary >> id_bits != 0) ++id_bits;
  return search(row, source, drawn, {false, amount}, id_bits, room).key;
}

/// Grid: rows.
__global__ void __launch_bounds__(kThreads, 1) draw_kernel(MoestroCudaSample a) {
  SearchRoom& search = *reinterpret_cast<SearchRoom*>(shared_memory());
  const int64_t number = blockIdx.x;
  const MoestroCudaSampling how = a.how[number];
  const RowRoom& room = room_of(a, number);
  const RankKey best = row_best(room, slices_of(a), search.best);
  const Way way = way_of(how, a.vocabulary);
  RankKey drawn = best;
  if (best != 0 && way != Way::kBest) {
    const Row row = row_of(a, number, best, how);
    drawn = way == Way::kAll ? draw_of_all(room, slices_of(a), row, how, best, search)
                             : draw_of_few(room, row, how, way, best, search);
  }
  if (threadIdx.x == 0) a.ids[number] = drawn == 0 ? -1 : static_cast<int32_t>(id_of(drawn));
}

}  // namespace
}  // namespace drawing

MoestroCudaResult sample(const MoestroCudaSample* a, MoestroCudaStream stream) {
  using namespace drawing;
  if (a->vocabulary > kVocabularyMax || a->n > 65535) return MOESTRO_CUDA_REFUSED;
  if (a->n == 0 || a->vocabulary == 0) return 0;
  const auto rows = static_cast<unsigned>(a->n);
  const dim3 slices(static_cast<unsigned>(slices_of(*a)), rows);
  constexpr uint64_t kKeys = kWarps * sizeof(RankKey);
  MoestroCudaResult result = launch(best_kernel, slices, kThreads, kKeys, stream, *a);
  if (result != 0) return result;
  if (a->how == nullptr) return launch(likeliest_kernel, rows, kThreads, kKeys, stream, *a);
  result = launch(bins_kernel, slices, kThreads, sizeof(SearchRoom), stream, *a);
  if (result == 0)
    result = launch(list_kernel, slices, kThreads, sizeof(SearchRoom) + kSlice * sizeof(uint16_t), stream, *a);
  return result != 0 ? result : launch(draw_kernel, rows, kThreads, sizeof(SearchRoom), stream, *a);
}

}  // namespace moestro::kernels::cuda

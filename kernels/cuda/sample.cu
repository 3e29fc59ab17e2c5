// From a row of logits to a token, as services/worker/engine/sampler.cc says. Several blocks read a row, a slice each,
// once for the best candidate, once for how many candidates, or what weights, lie how far from it, and once to list
// those that may be drawn. One block a row then draws among these few. Weights are summed as integers, so in any order:
// sums differ from the host's by what its exponential is off, and 2^-44 of the best one's weight for each candidate.
//
// If the candidates are too many for a list, only those of the bin where the cut lies are listed. When the cut has been
// found among them, the slices' sums say in which slice the drawn one lies. If even these are too many (equal logits),
// one block searches the whole row, which takes far longer.

#include "kernels/cuda/ops.h"
#include "kernels/cuda/philox.h"
#include "kernels/cuda/sample_search.h"

namespace moestro::kernels::cuda {
namespace drawing {
namespace {

__device__ RowRoom& room_of(const MoestroCudaSample& a, int64_t row) {
  return static_cast<RowRoom*>(a.workspace)[row];
}
__host__ __device__ int64_t slices_of(const MoestroCudaSample& a) { return divided_up(a.vocabulary, kSlice); }

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
    if (slice == 0 && threadIdx.x == 0) room.few_count = room.is_wide = 0;
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
  const RankKey best = row_best(room_of(a, blockIdx.x), slices_of(a));
  if (threadIdx.x == 0) a.ids[blockIdx.x] = best == 0 ? -1 : static_cast<int32_t>(id_of(best));
}

/// The sum of all threads' values, in the first thread.
__device__ Fixed block_sum(Fixed sum, SearchRoom& room) {
  sum = warp_fold<kWarp>(sum, [](Fixed a, Fixed b) { return a + b; });
  if (lane_id() == 0) room.of_warps[warp_id()] = {sum, 0};
  __syncthreads();
  if (threadIdx.x == 0)
    for (int w = 1; w < kWarps; ++w) sum += room.of_warps[w].weight;
  return sum;
}

/// What a slice adds to the row's bins, or, where all candidates can be drawn, its sum. Grid: slices, rows.
__global__ void __launch_bounds__(kThreads, 3) bins_kernel(MoestroCudaSample a) {
  SearchRoom& search = *reinterpret_cast<SearchRoom*>(shared_memory());
  const int64_t slice = blockIdx.x, number = blockIdx.y;
  const MoestroCudaSampling how = a.how[number];
  const Way way = way_of(how, a.vocabulary);
  if (way == Way::kBest) return;
  SliceOfThread mine;
  mine.load(a.logits + number * a.vocabulary, a.vocabulary, slice);
  RowRoom& room = room_of(a, number);
  search.bins.clear();
  const RankKey best = row_best(room, slices_of(a));
  if (best == 0) return;
  __syncthreads();
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
    if (way == Way::kByWeight) search.bins.add(static_cast<unsigned>(bin), fixed_of(weight));
    else if (weight >= how.min_p) sum += fixed_of(weight);
  }
  if (way == Way::kAll) {
    sum = block_sum(sum, search);
    if (threadIdx.x == 0) room.sums[slice] = sum;
    return;
  }
  __syncthreads();
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kThreads) {
    if (search.bins.counts[bin] == 0) continue;
    atomicAdd(&room.counts[bin], search.bins.counts[bin]);
    if (way == Way::kByWeight) atomicAdd(&room.weights[bin], search.bins.weight(bin));
  }
}

__device__ Fixed share_of(double share, Fixed of) {
  return at_most(at_least(static_cast<Fixed>(ceil(share * static_cast<double>(of))), Fixed{1}), of);
}

/// What the row's bins say: where the first cut is looked for.
struct Left {
  enum class Among { kList, kLastBin, kNothing, kRow };
  Among among;      ///< kList: all bins up to the last; kNothing: there is no cut; kRow: by one block
  int last_bin;     ///< with the cut, or the last one of all
  bool is_reached;  ///< whether there is a cut in the bins
  int64_t listed;   ///< candidates
  Target target;
  Sums before;  ///< before the last bin
};

__device__ Left left_of(const RowRoom& of, const MoestroCudaSampling& how, Way way, SearchRoom& room) {
  for (unsigned bin = threadIdx.x; bin < kBins; bin += kThreads) room.bins.set(bin, of.counts[bin], of.weights[bin]);
  __syncthreads();
  const Prefix prefix = prefix_of(room);
  const bool by_count = way == Way::kByCount;
  const Target target{by_count, by_count ? static_cast<Fixed>(how.top_k) : share_of(how.top_p, prefix.all.weight)};
  const FoundBin found = find_bin(room, prefix, target);
  const bool is_reached = found.bin < kBins;
  const int64_t up_to_it = int64_t{found.before.count} + found.of_it.count;
  Left left{Left::Among::kList, is_reached ? static_cast<int>(found.bin) : kBins - 1, is_reached, up_to_it, target,
            found.before};
  if (up_to_it <= kFew) return left;
  left.listed = is_reached ? found.of_it.count : 0;
  // After a count, top-p needs the weights of all up to it.
  if ((by_count && how.top_p < 1.0f) || left.listed > kFew) left.among = Left::Among::kRow;
  else left.among = is_reached ? Left::Among::kLastBin : Left::Among::kNothing;
  return left;
}

/// Lists the row's candidates, if they are few. Grid: slices, rows.
__global__ void __launch_bounds__(kThreads, 3) list_kernel(MoestroCudaSample a) {
  SearchRoom& search = *reinterpret_cast<SearchRoom*>(shared_memory());
  auto* listed = reinterpret_cast<uint16_t*>(shared_memory() + sizeof(SearchRoom));
  const int64_t slice = blockIdx.x, number = blockIdx.y;
  const MoestroCudaSampling how = a.how[number];
  const Way way = way_of(how, a.vocabulary);
  if (way != Way::kByCount && way != Way::kByWeight) return;
  RowRoom& room = room_of(a, number);
  const RankKey best = row_best(room, slices_of(a));
  if (best == 0) return;
  const Left left = left_of(room, how, way, search);
  if (left.among == Left::Among::kRow || left.among == Left::Among::kNothing) return;
  SliceOfThread mine;
  mine.load(a.logits + number * a.vocabulary, a.vocabulary, slice);
  const int first_bin = left.among == Left::Among::kLastBin ? left.last_bin : 0;
  if (threadIdx.x == 0) search.last_count = 0;
  __syncthreads();
  const Row row = row_of(a, number, best, how);
  MOESTRO_UNROLL
  for (int i = 0; i < kOfThread; ++i)
    if (const int bin = row.bin(mine.logits[i]); bin >= first_bin && bin <= left.last_bin)
      listed[atomicAdd(&search.last_count, 1u)] = static_cast<uint16_t>(SliceOfThread::id(0, i));
  __syncthreads();
  const uint32_t count = search.last_count;
  if (count == 0) return;
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

/// By the slices' sums: in the slice that the share falls on.
__device__ RankKey draw_by_slices(const RowRoom& of, int64_t slices, const Row& row, const MoestroCudaSampling& how,
                                  RankKey best, RankKey least, SearchRoom& room) {
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
  return search(row, slice, ById{first, row, least, how.min_p}, {false, amount - found.before.weight}, kSliceBits, room)
      .key;
}

/// By the list, or the whole row.
__device__ RankKey draw_of_few(const RowRoom& of, const Row& row, const MoestroCudaSampling& how, const Left& left,
                               RankKey best, SearchRoom& room) {
  const bool is_list = left.among == Left::Among::kList;
  const Source source{is_list ? of.few : nullptr, 0, is_list ? left.listed : row.vocabulary};
  const ByRank ranks{best, row};
  const int bits = offset_bits(row, source, ranks, room);
  Cut kept;
  if (!left.is_reached && is_list) kept.weight = total_weight(row, source, ranks, room);
  else kept = search(row, source, ranks, left.target, bits, room);
  if (left.target.by_count && how.top_p < 1.0f)
    kept = search(row, source, ranks, {false, share_of(how.top_p, kept.weight)}, bits, room);
  const ById drawn{0, row, kept.key, how.min_p};
  const Fixed amount = drawn_weight(how, total_weight(row, source, drawn, room));
  if (amount == 0) return best;
  int id_bits = 1;
  while (row.vocabulary >> id_bits != 0) ++id_bits;
  return search(row, source, drawn, {false, amount}, id_bits, room).key;
}

/// Leaves the rest to the slices: from which candidate down none can be drawn.
__device__ void leave_wide(RowRoom& of, const Row& row, const Left& left, RankKey best, SearchRoom& room) {
  Cut kept;
  if (left.among == Left::Among::kLastBin) {
    const Source source{of.few, 0, left.listed};
    const ByRank ranks{best, row};
    const Target within{left.target.by_count, left.target.amount - left.target.of(left.before)};
    kept = search(row, source, ranks, within, offset_bits(row, source, ranks, room), room);
  }
  if (threadIdx.x != 0) return;
  of.least = kept.key;
  of.is_wide = 1;
}

/// Grid: rows.
__global__ void __launch_bounds__(kThreads, 1) draw_kernel(MoestroCudaSample a) {
  SearchRoom& search = *reinterpret_cast<SearchRoom*>(shared_memory());
  const int64_t number = blockIdx.x;
  const MoestroCudaSampling how = a.how[number];
  RowRoom& room = room_of(a, number);
  const RankKey best = row_best(room, slices_of(a));
  const Way way = way_of(how, a.vocabulary);
  RankKey drawn = best;
  if (best != 0 && way != Way::kBest) {
    const Row row = row_of(a, number, best, how);
    if (way == Way::kAll) {
      drawn = draw_by_slices(room, slices_of(a), row, how, best, 0, search);
    } else {
      const Left left = left_of(room, how, way, search);
      if (left.among == Left::Among::kLastBin || left.among == Left::Among::kNothing)
        return leave_wide(room, row, left, best, search);
      drawn = draw_of_few(room, row, how, left, best, search);
    }
  }
  if (threadIdx.x == 0) a.ids[number] = drawn == 0 ? -1 : static_cast<int32_t>(id_of(drawn));
}

/// The slices' sums of a wide row. Grid: slices, rows.
__global__ void __launch_bounds__(kThreads) wide_sums_kernel(MoestroCudaSample a) {
  SearchRoom& search = *reinterpret_cast<SearchRoom*>(shared_memory());
  const int64_t slice = blockIdx.x, number = blockIdx.y;
  RowRoom& room = room_of(a, number);
  if (room.is_wide == 0) return;
  const MoestroCudaSampling how = a.how[number];
  SliceOfThread mine;
  mine.load(a.logits + number * a.vocabulary, a.vocabulary, slice);
  const Row row = row_of(a, number, row_best(room, slices_of(a)), how);
  const ById drawn{0, row, room.least, how.min_p};
  Fixed sum = 0;
  MOESTRO_UNROLL
  for (int i = 0; i < kOfThread; ++i)
    if (row.bin(mine.logits[i]) != kBins) sum += drawn.weight(key_of(mine.logits[i], SliceOfThread::id(slice, i)));
  sum = block_sum(sum, search);
  if (threadIdx.x == 0) room.sums[slice] = sum;
}

/// Grid: rows.
__global__ void __launch_bounds__(kThreads, 1) wide_draw_kernel(MoestroCudaSample a) {
  SearchRoom& search = *reinterpret_cast<SearchRoom*>(shared_memory());
  const int64_t number = blockIdx.x;
  const RowRoom& room = room_of(a, number);
  if (room.is_wide == 0) return;
  const MoestroCudaSampling how = a.how[number];
  const RankKey best = row_best(room, slices_of(a));
  const Row row = row_of(a, number, best, how);
  const RankKey drawn = draw_by_slices(room, slices_of(a), row, how, best, room.least, search);
  if (threadIdx.x == 0) a.ids[number] = static_cast<int32_t>(id_of(drawn));
}

}  // namespace
}  // namespace drawing

MoestroCudaResult sample(const MoestroCudaSample* a, MoestroCudaStream stream) {
  using namespace drawing;
  if (a->vocabulary > kVocabularyMax || a->n > 65535) return MOESTRO_CUDA_REFUSED;
  if (a->n == 0 || a->vocabulary == 0) return 0;
  const dim3 rows(static_cast<unsigned>(a->n)), slices(static_cast<unsigned>(slices_of(*a)), rows.x);
  constexpr uint64_t kRoom = sizeof(SearchRoom), kList = kSlice * sizeof(uint16_t);
  MoestroCudaResult result = launch(best_kernel, slices, kThreads, kWarps * sizeof(RankKey), stream, *a);
  if (a->how == nullptr) return result != 0 ? result : launch(likeliest_kernel, rows, kWarp, 0, stream, *a);
  if (result == 0) result = launch(bins_kernel, slices, kThreads, kRoom, stream, *a);
  if (result == 0) result = launch(list_kernel, slices, kThreads, kRoom + kList, stream, *a);
  if (result == 0) result = launch(draw_kernel, rows, kThreads, kRoom, stream, *a);
  if (result == 0) result = launch(wide_sums_kernel, slices, kThreads, kRoom, stream, *a);
  return result != 0 ? result : launch(wide_draw_kernel, rows, kThreads, kRoom, stream, *a);
}

}  // namespace moestro::kernels::cuda

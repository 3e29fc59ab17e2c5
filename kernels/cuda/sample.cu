// From a row of logits to a token, as services/worker/engine/sampler.cc says: a block for each row. The candidate at
// which a running count or weight, from the best one down, reaches a target is found by histograms over the digits of
// its key (rank_key.h). Weights are summed as integers, so in any order: sums differ from the host's by what its
// exponential is off, and 2^-44 of the best one's weight for each candidate.

#include "kernels/cuda/numbers.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/philox.h"
#include "kernels/cuda/rank_key.h"

namespace moestro::kernels::cuda {
namespace {

constexpr unsigned kThreads = 512;
constexpr int kWarps = kThreads / kWarp;
constexpr int kDigitBits = 11, kBins = 1 << kDigitBits;
constexpr int64_t kVocabularyMax = int64_t{1} << 21;  // ids have two digits

/// A weight in steps of 2^-44; those of kVocabularyMax candidates do not overflow.
using Fixed = unsigned long long;
constexpr double kOne = 17592186044416.0;
constexpr float kFactorMax = 1e30f;  // as the host's sampler

/// A candidate, and what all from the best one down to it, itself included, are together.
struct Cut {
  RankKey key = 0;
  Fixed weight = 0;
  uint32_t count = 0;
};

/// Shared memory.
struct Room {
  RankKey best[kWarps];
  uint32_t not_finite[kWarps];  ///< votes
  Fixed weights[kBins];
  uint32_t counts[kBins];
  Fixed lane_weights[kWarp];
  uint32_t lane_counts[kWarp];
  Cut cut;
  Fixed total;
  int64_t drawn;
};

struct Row {
  const float* logits;
  int64_t vocabulary;
  float top, factor;  ///< factor: 1 / temperature, within bounds

  __device__ float weight(int64_t i) const { return exponential(logits[i], top, factor); }
  __device__ Fixed fixed_weight(int64_t i) const {
    return static_cast<Fixed>(static_cast<double>(weight(i)) * kOne + 0.5);
  }
};

/// What a search goes by, and how much of it is to be reached.
struct Target {
  bool by_count;
  Fixed amount;
  __device__ bool is_reached(Fixed weight, uint32_t count) const {
    return (by_count ? static_cast<Fixed>(count) : weight) >= amount;
  }
};

/// The first bin from the highest down at which the target is reached: onto room.cut. By the first warp.
__device__ void find_bin(Room& room, const Target& target, int bits) {
  const int chunk = (1 << bits) / kWarp, highest = (1 << bits) - 1 - lane_id() * chunk;
  Fixed weight = 0;
  uint32_t count = 0;
  for (int i = 0; i < chunk; ++i) {
    weight += room.weights[highest - i];
    count += room.counts[highest - i];
  }
  room.lane_weights[lane_id()] = weight;
  room.lane_counts[lane_id()] = count;
  __syncwarp();
  if (lane_id() != 0) return;
  Cut cut = room.cut;
  int lane = 0;
  for (;
       lane < kWarp - 1 && !target.is_reached(cut.weight + room.lane_weights[lane], cut.count + room.lane_counts[lane]);
       ++lane) {
    cut.weight += room.lane_weights[lane];
    cut.count += room.lane_counts[lane];
  }
  int bin = (1 << bits) - 1 - lane * chunk;
  for (const int last = bin - chunk + 1;
       bin > last && !target.is_reached(cut.weight + room.weights[bin], cut.count + room.counts[bin]); --bin) {
    cut.weight += room.weights[bin];
    cut.count += room.counts[bin];
  }
  cut.key = cut.key << bits | static_cast<uint32_t>(bin);
  room.cut = cut;
}

/// The digit of `bits` bits from `shift` on, of the candidates whose higher bits are room.cut.key.
__device__ void find_digit(const Row& row, Room& room, const Target& target, int shift, int bits) {
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) {
    room.weights[i] = 0;
    room.counts[i] = 0;
  }
  __syncthreads();
  const RankKey prefix = room.cut.key;
  for (int64_t i = threadIdx.x; i < row.vocabulary; i += kThreads) {
    const RankKey key = key_of(row.logits[i], i), digits = key >> shift;
    if (shift + bits < 64 && digits >> bits != prefix) continue;
    const auto bin = static_cast<uint32_t>(digits) & ((1u << bits) - 1u);
    atomicAdd(&room.counts[bin], 1u);
    atomicAdd(&room.weights[bin], row.fixed_weight(i));
  }
  __syncthreads();
  if (warp_id() == 0) find_bin(room, target, bits);
  __syncthreads();
}

/// The first candidate from the best one down at which the target, which all together reach, is reached.
__device__ Cut search(const Row& row, Room& room, const Target& target) {
  if (threadIdx.x == 0) room.cut = Cut();
  __syncthreads();
  find_digit(row, room, target, 53, 11);
  find_digit(row, room, target, 42, 11);
  find_digit(row, room, target, 32, 10);
  // The next 11 bits are ones in every key: ids are below kVocabularyMax.
  if (threadIdx.x == 0) room.cut.key = room.cut.key << 11 | 0x7ffu;
  __syncthreads();
  find_digit(row, room, target, 10, 11);
  find_digit(row, room, target, 0, 10);
  Cut found = room.cut;
  const int64_t id = id_of(found.key);
  found.weight += row.fixed_weight(id);
  found.count += 1;
  __syncthreads();
  return found;
}

__device__ Fixed share_of(double share, Fixed of) {
  return at_most(at_least(static_cast<Fixed>(ceil(share * static_cast<double>(of))), Fixed{1}), of);
}

__device__ Fixed total_weight(const Row& row, Room& room) {
  if (threadIdx.x == 0) room.total = 0;
  __syncthreads();
  Fixed mine = 0;
  for (int64_t i = threadIdx.x; i < row.vocabulary; i += kThreads) mine += row.fixed_weight(i);
  atomicAdd(&room.total, mine);
  __syncthreads();
  return room.total;
}

/// Who can be drawn: from the best one down to `least`, and not less than min_p times as likely.
struct Drawn {
  RankKey least;
  float min_p;
  double share;  ///< of all their weights

  __device__ Fixed weight(const Row& row, int64_t i) const {
    return key_of(row.logits[i], i) >= least && row.weight(i) >= min_p ? row.fixed_weight(i) : Fixed{0};
  }
};

/// The token on which the share falls where candidates stand in the order of their ids; room.weights: of a run of
/// `chunk` ids each. One lane.
__device__ int64_t find_drawn(const Row& row, const Room& room, const Drawn& drawn, int64_t chunk) {
  constexpr int kBinsOfLane = kBins / kWarp;
  Fixed total = 0, passed = 0;
  for (int l = 0; l < kWarp; ++l) total += room.lane_weights[l];
  const Fixed target = at_most(static_cast<Fixed>(drawn.share * static_cast<double>(total)) + 1, total);
  int l = 0;
  for (; l < kWarp - 1 && passed + room.lane_weights[l] < target; ++l) passed += room.lane_weights[l];
  int bin = l * kBinsOfLane;
  for (; bin < (l + 1) * kBinsOfLane - 1 && passed + room.weights[bin] < target; ++bin) passed += room.weights[bin];
  int64_t id = bin * chunk;
  for (const int64_t last = at_most((bin + 1) * chunk, row.vocabulary) - 1; id < last; ++id) {
    passed += drawn.weight(row, id);
    if (passed >= target) break;
  }
  return id;
}

__device__ int64_t draw_from(const Row& row, Room& room, const Drawn& drawn) {
  const int64_t chunk = divided_up(row.vocabulary, kBins);
  for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kThreads) room.weights[i] = 0;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < row.vocabulary; i += kThreads)
    if (const Fixed weight = drawn.weight(row, i)) atomicAdd(&room.weights[i / chunk], weight);
  __syncthreads();
  if (warp_id() == 0) {
    Fixed mine = 0;
    for (int i = 0; i < kBins / kWarp; ++i) mine += room.weights[lane_id() * (kBins / kWarp) + i];
    room.lane_weights[lane_id()] = mine;
    __syncwarp();
    if (lane_id() == 0) room.drawn = find_drawn(row, room, drawn, chunk);
  }
  __syncthreads();
  return room.drawn;
}

__device__ int64_t draw(const Row& row, Room& room, const MoestroCudaSampling& how) {
  Cut kept;
  const bool few = how.top_k > 0 && how.top_k < row.vocabulary;
  if (few) kept = search(row, room, {true, static_cast<Fixed>(how.top_k)});
  else if (how.top_p < 1.0f) kept.weight = total_weight(row, room);
  if (how.top_p < 1.0f) kept = search(row, room, {false, share_of(how.top_p, kept.weight)});
  return draw_from(row, room,
                   {kept.key, how.min_p, uniform_at(how.seed, how.choice, static_cast<uint32_t>(how.position))});
}

/// The best candidate in every thread; 0 where a logit is not finite.
__device__ RankKey best_of(const float* logits, int64_t vocabulary, Room& room) {
  RankKey best = 0;
  bool finite = true;
  for (int64_t i = threadIdx.x; i < vocabulary; i += kThreads) {
    best = at_least(best, key_of(logits[i], i));
    finite = finite && isfinite(logits[i]);
  }
  best = warp_best(best);
  const uint32_t votes = __ballot_sync(kWholeWarp, !finite);
  if (lane_id() == 0) {
    room.best[warp_id()] = best;
    room.not_finite[warp_id()] = votes;
  }
  __syncthreads();
  uint32_t any = 0;
  for (int w = 0; w < kWarps; ++w) {
    best = at_least(best, room.best[w]);
    any |= room.not_finite[w];
  }
  return any != 0 ? RankKey{0} : best;
}

__global__ void sample_kernel(MoestroCudaSample a) {
  Room& room = *reinterpret_cast<Room*>(shared_memory());
  const float* logits = a.logits + static_cast<int64_t>(blockIdx.x) * a.vocabulary;
  const RankKey best = best_of(logits, a.vocabulary, room);
  int64_t id = best == 0 ? -1 : id_of(best);
  if (a.how && best != 0) {
    const MoestroCudaSampling how = a.how[blockIdx.x];
    const Row row{logits, a.vocabulary, logits[id], fminf(1.0f / how.temperature, kFactorMax)};
    if (how.temperature > 0.0f && how.top_k != 1) id = draw(row, room, how);
  }
  if (threadIdx.x == 0) a.ids[blockIdx.x] = static_cast<int32_t>(id);
}

}  // namespace

MoestroCudaResult sample(const MoestroCudaSample* a, MoestroCudaStream stream) {
  if (a->vocabulary > kVocabularyMax) return MOESTRO_CUDA_REFUSED;
  return launch(sample_kernel, dim3(static_cast<unsigned>(a->n)), kThreads, sizeof(Room), stream, *a);
}

}  // namespace moestro::kernels::cuda

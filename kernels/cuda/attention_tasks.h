#pragma once
// How blocks share attention: a task is a part of a unit and KV head. Tasks are numbered unit by unit, head by head,
// part by part, and a block takes a run of them.

#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/reduce.h"

namespace moestro::kernels::cuda {

struct Task {
  int unit = 0, head = 0;
  int index = -1, count = 0;  ///< of the unit's parts
  int part = 0;
};

/// A unit with what its queries say, and its first task.
struct UnitRecord {
  MoestroCudaAttentionUnit unit;
  int first_task, first_block, first_position, last_position;
};

/// Filled by all threads of a block.
struct UnitList {
  const MoestroCudaAttention& a;
  UnitRecord* records;  ///< in shared memory
  int count = 0;
  int only_head = -1;  ///< -1: of all KV heads

  /// With all units; returns the number of tasks.
  __device__ int fill() {
    count = static_cast<int>(a.unit_count);
    for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) records[i] = record_of(i);
    __syncthreads();
    int total = 0;
    for (int base = 0; base < count; base += kWarp) {  // every warp adds up, the first one keeps the sums
      const int i = base + lane_id();
      const int mine = i < count ? static_cast<int>(a.kv.kv_heads) * parts_of(i).count : 0;
      int sum = mine;
      for (int step = 1; step < kWarp; step *= 2) {
        const int other = __shfl_sync(kWholeWarp, sum, lane_id() - step);
        if (lane_id() >= step) sum += other;
      }
      if (warp_id() == 0 && i < count) records[i].first_task = total + sum - mine;
      total += __shfl_sync(kWholeWarp, sum, kWarp - 1);
    }
    __syncthreads();
    return total;
  }

  /// With one unit and KV head.
  __device__ int fill_with(int unit, int head) {
    count = 1;
    only_head = head;
    if (threadIdx.x == 0) records[0] = record_of(unit);
    __syncthreads();
    return parts_of(0).count;
  }

  __device__ Task locate(int task) const {
    int low = 0, high = count;  // of the last unit whose first task is not after it
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (records[middle].first_task <= task) low = middle;
      else high = middle;
    }
    const SeenParts parts = parts_of(low);
    const int within = task - records[low].first_task;
    Task t;
    t.unit = uniform(low);
    t.count = uniform(parts.count);
    t.head = only_head >= 0 ? only_head : uniform(within / parts.count);
    t.index = only_head >= 0 ? within : uniform(within % parts.count);
    t.part = parts.part(t.index);
    return t;
  }

  /// The task after one that is not the last.
  __device__ void advance(Task& t) const {
    if (++t.index == t.count) {
      t.index = 0;
      if (++t.head == static_cast<int>(a.kv.kv_heads)) {
        t.head = 0;
        t.count = uniform(parts_of(++t.unit).count);
      }
    }
    t.part = uniform(parts_of(t.unit).part(t.index));
  }

  // Of the unit with this number.
  __device__ UnitRecord record_of(int index) const {
    UnitRecord r;
    r.unit = a.units[index];
    const MoestroCudaQuery query = query_of(a, r.unit, 0);
    r.first_task = 0;
    r.first_block = query.first_block;
    r.first_position = query.position;
    r.last_position = query_of(a, r.unit, r.unit.pairs - 1).position;
    return r;
  }
  __device__ SeenParts parts_of(int i) const {
    const PairSight last = sight_at(a, records[i].last_position);
    return seen_parts(sight_at(a, records[i].first_position).begin, last.sinks, last.position);
  }
};

}  // namespace moestro::kernels::cuda

#include "services/worker/cuda/cuda_head.h"

#include <algorithm>

#include "services/worker/cuda/float_bytes.h"

namespace moestro::cuda {
namespace {

using engine::LogitRow;

// Scoring a long prompt must not need prompt x vocabulary floats.
constexpr int64_t kTileRows = 64;

bool host_reads(const LogitRow& row, const engine::PlanSequence& sequence) {
  return row.score || sequence.adjusts() || sequence.sampling.logprobs >= 0;
}

MoestroCudaSampling sampling_of(const Sampling& s, int32_t position) {
  return {s.temperature, s.top_k, s.top_p, s.min_p, s.seed, s.choice, position};
}

}  // namespace

CudaHead::CudaHead(const model::ModelSpec& spec, const engine::DenseWeights& weights, kernels::cuda::CudaOps& ops,
                   kernels::cuda::CudaMemory& memory, kernels::Ops& host_ops, int64_t step_tokens_max)
    : spec_(spec),
      weights_(weights),
      ops_(ops),
      memory_(memory),
      reader_(host_ops),
      tile_(tile_rows(step_tokens_max)),
      buffers_(memory),
      ids_(ops, step_tokens_max),
      sums_(spec.hidden),
      states_(static_cast<size_t>(tile_ * spec.hidden)) {
  rows_ = buffers_.make<float>(tile_ * spec.hidden);
  logits_ = buffers_.make<float>(tile_ * spec.vocab);
  device_ids_ = buffers_.make<int32_t>(step_tokens_max);
  ops_.reserve_sampling(tile_);
}

int64_t CudaHead::tile_rows(int64_t step_tokens_max) { return std::min(kTileRows, step_tokens_max); }

void CudaHead::launch(const engine::StepPlan& plan, const engine::StepBatch& batch, const float* normed) {
  const auto total = static_cast<int64_t>(batch.logit_rows.size());
  read_.resize(static_cast<size_t>(total));
  for (int64_t first = 0; first < total; first += tile_)
    launch_tile(plan, batch, normed, first, std::min(tile_, total - first));
  auto& queue = ops_.queue();
  if (total > 0 && queue.error == 0)
    queue.note("copy_out", queue.functions.copy_out(ids_.data(), device_ids_,
                                                    static_cast<uint64_t>(total) * sizeof(int32_t), queue.stream));
  sums_.add(batch, tile_, [&](int64_t first, int64_t n) -> const float* {
    memory_.copy_out(states_.data(), normed + first * spec_.hidden, n * spec_.hidden * kFloatBytes);
    return states_.data();
  });
}

const float* CudaHead::rows_of(const engine::StepBatch& batch, const float* normed) {
  const bool neighbours = std::ranges::adjacent_find(row_list_, [](int32_t a, int32_t b) { return b != a + 1; }) ==
                          row_list_.end();
  if (neighbours) return normed + row_list_.front() * spec_.hidden;
  ops_.gather_rows({normed, DType::kF32, batch.rows(), spec_.hidden, nullptr}, row_list_, rows_);
  return rows_;
}

void CudaHead::launch_tile(const engine::StepPlan& plan, const engine::StepBatch& batch, const float* normed,
                           int64_t first, int64_t n) {
  row_list_.clear();
  how_.clear();
  bool all_likeliest = true;
  for (int64_t i = 0; i < n; ++i) {
    const LogitRow& row = batch.logit_rows[static_cast<size_t>(first + i)];
    const Sampling& sampling = plan.sequences[row.sequence].sampling;
    row_list_.push_back(row.row);
    how_.push_back(sampling_of(sampling, batch.positions[static_cast<size_t>(row.row)]));
    all_likeliest = all_likeliest && sampling.temperature <= 0;
  }
  if (all_likeliest) how_.clear();
  ops_.matmul(rows_of(batch, normed), n, weights_.head(), weights_.head_bias(), logits_,
              kernels::Activations::kRounded);
  if (spec_.logits_divisor != 1.0)
    ops_.scale(logits_, n * spec_.vocab, static_cast<float>(1.0 / spec_.logits_divisor));
  ops_.sample(logits_, n, spec_.vocab, how_, device_ids_ + first);
  for (int64_t i = 0; i < n; ++i) {
    const LogitRow& row = batch.logit_rows[static_cast<size_t>(first + i)];
    std::vector<float>& read = read_[static_cast<size_t>(first + i)];
    read.clear();
    if (!host_reads(row, plan.sequences[row.sequence])) continue;
    read.resize(static_cast<size_t>(spec_.vocab));
    memory_.copy_out(read.data(), logits_ + i * spec_.vocab, spec_.vocab * kFloatBytes);
  }
}

uint32_t CudaHead::finish(const engine::StepPlan& plan, const engine::StepBatch& batch, std::vector<Status>& failed,
                          std::vector<engine::SequenceOutcome>& outcomes) {
  uint32_t not_finite = sums_.finish(batch, failed, outcomes);
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const LogitRow& row = batch.logit_rows[i];
    if (!read_[i].empty()) {
      if (!reader_.read(plan, batch, row, read_[i], failed, outcomes)) ++not_finite;
      continue;
    }
    if (!failed[row.sequence].is_ok()) continue;
    if (ids_.data()[i] >= 0) {
      outcomes[row.sequence].sampled.emplace_back().id = ids_.data()[i];
      continue;
    }
    failed[row.sequence] = engine::LogitReader::not_finite("some of " + std::to_string(spec_.vocab),
                                                           batch.positions[static_cast<size_t>(row.row)]);
    ++not_finite;
  }
  return not_finite;
}

}  // namespace moestro::cuda

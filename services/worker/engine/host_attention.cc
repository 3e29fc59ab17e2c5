#include "services/worker/engine/host_attention.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "services/worker/engine/attention_chunks.h"

namespace moestro::engine {
namespace {

KvMove move_of(float* to, const float* from, TokenRange rows, int64_t width) {
  const int64_t at = rows.first * width;
  return {reinterpret_cast<std::byte*>(to + at), reinterpret_cast<const std::byte*>(from + at),
          rows.count * width * static_cast<int64_t>(sizeof(float))};
}

}  // namespace

std::string not_on_host(const model::ModelSpec& spec) {
  for (const model::LayerSpec& layer : spec.layers) {
    if (layer.latent) return "latent attention (MLA)";
    if (layer.delta) return "layers of the gated delta rule";
    // Micro-batches of two layers are on their way at once, and find their rows by the layer's width.
    if (widths_of(layer.attention) != widths_of(spec.layers.front().attention))
      return "layers of different numbers of heads";
  }
  return "";
}

Status check_host_attention(const model::ModelSpec& spec, const EngineOptions& options) {
  const std::string lacks = options.visible.window > 0 ? "--kv-window" : not_on_host(spec);
  if (lacks.empty()) return Status::ok();
  return unsupported("--schedule cgo with " + lacks + ": the host attends with grouped-query attention over all "
                     "positions only; take expert-pipeline or layerwise");
}

HostAttention::HostAttention(const MathParts& parts, LayerMath& math, kernels::Ops& ops, KvLink& link,
                             const Clock& clock, int64_t n)
    : p_(parts), math_(math), ops_(ops), link_(link), clock_(clock), buffers_(parts.memory.host_side()) {
  int32_t next = 0;
  for (const model::LayerSpec& layer : p_.spec.layers) {
    moe_layer_.push_back(next);
    next += layer.moe_index ? 1 : 0;
  }
  const AttentionWidths w = widest_heads(p_.spec);
  for (float** wide : {&rows_.q, &rows_.attended}) *wide = buffers_.make<float>(n * w.q);
  for (float** narrow : {&rows_.k, &rows_.v}) *narrow = buffers_.make<float>(n * w.kv);
  chunks_.reserve(static_cast<size_t>(n));
  for (size_t l = 0; l < p_.spec.layers.size(); ++l) {
    const model::AttentionSpec& of = p_.spec.layers[l].attention;
    std::vector<float>& sinks = sink_logits_.emplace_back(of.sink_logits ? static_cast<size_t>(of.heads) : 0);
    if (!sinks.empty())
      p_.memory.copy_out(sinks.data(), p_.weights.layer(l).sink_logits,
                         static_cast<int64_t>(sinks.size() * sizeof(float)));
  }
  thread_ = std::thread([this] { run(); });
}

HostAttention::~HostAttention() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_one();
  thread_.join();
}

void HostAttention::begin(const StepBatch& batch) {
  batch_ = &batch;
  moves_.resize(std::max(moves_.size(), batch.micro_batches.size()));
}

std::span<const KvMove> HostAttention::moves_out(const lanes::Task& task) {
  const AttentionRows on = math_.attention_rows(static_cast<size_t>(task.layer));
  const TokenRange rows = micro_batch(task).rows;
  Moves& m = moves_[static_cast<size_t>(task.micro_batch)];
  m.out = {move_of(rows_.q, on.q, rows, on.widths.q), move_of(rows_.k, on.k, rows, on.widths.kv),
           move_of(rows_.v, on.v, rows, on.widths.kv)};
  return m.out;
}

std::span<const KvMove> HostAttention::moves_in(const lanes::Task& task) {
  const AttentionRows on = math_.attention_rows(static_cast<size_t>(task.layer));
  const TokenRange rows = micro_batch(task).rows;
  KvMove& in = moves_[static_cast<size_t>(task.micro_batch)].in;
  in = move_of(on.attended, rows_.attended, rows, on.widths.q);
  return {&in, 1};
}

void HostAttention::start(lanes::TaskId id, const lanes::Task& task) {
  ++under_way_;
  if (task.kind != lanes::TaskKind::kAttend) {
    const bool out = task.kind == lanes::TaskKind::kQkvSend;
    return link_.begin(id, task, moe_layer_[static_cast<size_t>(task.layer)], out ? moves_out(task) : moves_in(task));
  }
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back({id, task});
  }
  work_.notify_one();
}

void HostAttention::take_ended(std::vector<lanes::TaskId>& ended) {
  if (under_way_ == 0) return;
  const size_t before = ended.size();
  link_.take_ended(ended);
  under_way_ -= static_cast<int>(ended.size() - before);
}

void HostAttention::abandon() {
  {
    std::unique_lock lock(mutex_);
    jobs_.clear();
    idle_.wait(lock, [this] { return !computing_; });
  }
  link_.abandon();
  under_way_ = 0;
}

void HostAttention::draw(lanes::Timeline* timeline) {
  const std::lock_guard lock(mutex_);
  if (timeline != nullptr)
    for (const lanes::Slice& slice : slices_) timeline->slice(slice);
  slices_.clear();
}

// --- the host's thread ---

void HostAttention::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    work_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (stop_) return;
    const Job job = jobs_.front();
    jobs_.erase(jobs_.begin());
    computing_ = true;
    lock.unlock();
    const Nanos begin = clock_.now();
    attend(job.task);
    const Nanos end = clock_.now();
    lock.lock();
    slices_.push_back({job.task, job.id, begin, end});
    lock.unlock();
    link_.end_elsewhere(job.id);
    lock.lock();
    computing_ = false;
    idle_.notify_one();
  }
}

/// As GroupedAttention::compute(), on blocks of the cache where their home is.
void HostAttention::attend(const lanes::Task& task) {
  const auto layer = static_cast<size_t>(task.layer);
  const TokenRange of = micro_batch(task).sequences;
  const std::span<const kernels::AttentionSequence> sequences =
      std::span(batch_->attention).subspan(of.first, of.count);
  kernels::AttentionShape shape = p_.cache.shape(layer);
  shape.sink_logits = sink_logits_[layer].empty() ? nullptr : sink_logits_[layer].data();
  const kernels::KvView cache = p_.cache.host_layer(layer);
  ops_.kv_write(shape, sequences, rows_.k, rows_.v, cache);
  attend_within_chunks(ops_, p_.spec.layers[layer].attention.chunk, shape, sequences, rows_.q, nullptr, cache,
                       rows_.attended, chunks_);
}

}  // namespace moestro::engine

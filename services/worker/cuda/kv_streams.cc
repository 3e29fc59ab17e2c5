#include "services/worker/cuda/kv_streams.h"

namespace moestro::cuda {

KvStreams::KvStreams(kernels::cuda::CudaOps& ops, const engine::KvCache& cache)
    : queue_(ops.queue()), cache_(cache), device_blocks_(static_cast<uint32_t>(cache.blocks())) {
  if (cache.host_blocks() == 0) return;
  const MoestroCudaFunctions& f = queue_.functions;
  queue_.note("make_stream", f.make_stream(0, &in_));
  queue_.note("make_stream", f.make_stream(0, &out_));
  queue_.note("make_event", f.make_event(0, &order_));
  out_done_.resize(cache.layers());
  done_.resize(cache.layers());
  for (MoestroCudaEvent& event : out_done_) queue_.note("make_event", f.make_event(0, &event));
  for (MoestroCudaEvent& event : done_) queue_.note("make_event", f.make_event(0, &event));
  touched_.resize(static_cast<size_t>(cache.blocks() + cache.host_blocks()));
}

KvStreams::~KvStreams() {
  const MoestroCudaFunctions& f = queue_.functions;
  for (MoestroCudaStream stream : {in_, out_})
    if (stream != nullptr) (void)f.wait_stream(stream), (void)f.end_stream(stream);
  if (order_ != nullptr) (void)f.end_event(order_);
  for (const auto& events : {out_done_, done_})
    for (MoestroCudaEvent event : events)
      if (event != nullptr) (void)f.end_event(event);
}

void KvStreams::copy(std::span<const KvCopy> copies) {
  if (copies.empty() || queue_.error != 0) return;
  if (in_ != nullptr) follow(in_, queue_.stream), follow(out_, queue_.stream);
  for (const KvCopy& c : copies) {
    if (goes_out(c)) {
      if (needs_new_round(c)) end_round();
      add(outs_, c);
    } else if (comes_in(c)) {
      touched_[c.from] = touched_[c.to] = round_;
      add(ins_, c);
    } else {
      end_round();
      copy_within(c);
    }
  }
  end_round();
}

void KvStreams::before_layer(size_t layer) {
  if (pending_ && queue_.error == 0)
    queue_.note("stream_waits", queue_.functions.stream_waits(queue_.stream, done_[layer]));
}

/// Blocks side by side go in one copy.
void KvStreams::add(std::vector<Run>& runs, KvCopy c) {
  if (!runs.empty() && c.from == runs.back().from + runs.back().count && c.to == runs.back().to + runs.back().count)
    ++runs.back().count;
  else
    runs.push_back({c.from, c.to, 1});
}

void KvStreams::end_round() {
  if (outs_.empty() && ins_.empty()) return;
  const MoestroCudaFunctions& f = queue_.functions;
  if (pending_) follow(out_, in_);  // the round before, whose copies in were queued last
  for (size_t l = 0; l < cache_.layers() && queue_.error == 0; ++l) {
    const auto bytes = static_cast<uint64_t>(cache_.block_bytes(l));
    if (bytes == 0) {  // it keeps no KV
      queue_.note("record_event", f.record_event(done_[l], in_));
      continue;
    }
    for (const Run& r : outs_)
      queue_.note("copy_out", f.copy_out(cache_.block(l, r.to), cache_.block(l, r.from), r.count * bytes, out_));
    queue_.note("record_event", f.record_event(out_done_[l], out_)) &&
        queue_.note("stream_waits", f.stream_waits(in_, out_done_[l]));
    for (const Run& r : ins_)
      queue_.note("copy_in", f.copy_in(cache_.block(l, r.to), cache_.block(l, r.from), r.count * bytes, in_));
    queue_.note("record_event", f.record_event(done_[l], in_));
  }
  outs_.clear();
  ins_.clear();
  ++round_;
  pending_ = true;
}

/// Within the device: among the computing, behind the copies before it and before those after it.
void KvStreams::copy_within(KvCopy c) {
  if (c.from == c.to) return;
  if (pending_) follow(queue_.stream, in_);
  for (size_t l = 0; l < cache_.layers() && queue_.error == 0; ++l) {
    const auto bytes = static_cast<uint64_t>(cache_.block_bytes(l));
    if (bytes == 0) continue;
    queue_.note("copy_within", queue_.functions.copy_within(cache_.block(l, c.to), cache_.block(l, c.from), bytes,
                                                            queue_.stream));
  }
  if (in_ != nullptr) follow(in_, queue_.stream), follow(out_, queue_.stream);
}

void KvStreams::follow(MoestroCudaStream later, MoestroCudaStream earlier) {
  if (queue_.error != 0) return;
  queue_.note("record_event", queue_.functions.record_event(order_, earlier)) &&
      queue_.note("stream_waits", queue_.functions.stream_waits(later, order_));
}

}  // namespace moestro::cuda

#include "services/worker/cuda/device_marks.h"

#include <algorithm>

namespace moestro::cuda {

DeviceMarks::~DeviceMarks() {
  for (const MoestroCudaEvent event : events_) (void)queue_.functions.end_event(event);
}

/// Whether events_[recorded_ - 1] is a new one.
bool DeviceMarks::record() {
  if (timeline_ == nullptr || queue_.error != 0) return false;
  const MoestroCudaFunctions& f = queue_.functions;
  if (recorded_ == events_.size()) {
    MoestroCudaEvent event = nullptr;
    if (!queue_.note("make_event", f.make_event(MOESTRO_CUDA_EVENT_TIMED, &event))) return false;
    events_.push_back(event);
  }
  if (!queue_.note("record_event", f.record_event(events_[recorded_], queue_.stream))) return false;
  ++recorded_;
  return true;
}

void DeviceMarks::begin_step() {
  recorded_ = 0;
  parts_.clear();
  uses_.clear();
  open_ = false;
  begin_ = clock_.now();
  (void)record();
}

void DeviceMarks::close(size_t event) {
  if (open_) parts_.back().end = event;
  open_ = false;
}

void DeviceMarks::begin(lanes::TaskKind kind, int32_t layer, int32_t expert, int32_t micro_batch) {
  if (!record()) return;
  close(recorded_ - 1);
  parts_.push_back({.task = {.kind = kind, .layer = layer, .expert = expert, .micro_batch = micro_batch},
                    .begin = recorded_ - 1});
  open_ = true;
}

void DeviceMarks::end() {
  if (open_ && record()) close(recorded_ - 1);
}

void DeviceMarks::uses(int32_t layer, int32_t expert) {
  if (timeline_ == nullptr) return;
  uses_.push_back({layer, expert, timeline_->copy_of(layer, expert)});
  experts_at_.resize(std::max(experts_at_.size(), static_cast<size_t>(layer) + 1));
}

Nanos DeviceMarks::at(size_t event) const {
  float ms = 0;
  (void)queue_.functions.elapsed(&ms, events_.front(), events_[event]);
  return begin_ + Nanos(static_cast<int64_t>(static_cast<double>(ms) * 1e6));
}

void DeviceMarks::draw() {
  if (timeline_ == nullptr) return;
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const Nanos from = at(part.begin);
    timeline_->slice({.task = part.task, .id = static_cast<lanes::TaskId>(i), .begin = from, .end = at(part.end)});
    if (part.task.kind != lanes::TaskKind::kLayerExperts) continue;
    // The last one counts: what was queued ahead in vain comes before it.
    if (const auto layer = static_cast<size_t>(part.task.layer); layer < experts_at_.size()) experts_at_[layer] = from;
  }
  for (const Use& use : uses_)
    timeline_->used(lanes::Lane::kCompute, use.layer, use.expert, use.copy,
                    experts_at_[static_cast<size_t>(use.layer)]);
}

}  // namespace moestro::cuda

#include "kernels/cuda/emulator/streams.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "kernels/cuda/emulator/device_region.h"

namespace moestro::kernels::cuda::emulated {
namespace {

using Work = std::function<void()>;

/// Of this thread; -1: it has chosen none.
thread_local int32_t current_device = -1;

struct Stream {
  int32_t queries = 0;  ///< 0: not late
  std::deque<Work> queued;
  int32_t device = -1;
};

struct Event {
  Stream* stream = nullptr;  ///< of its last record; alive while that has not come
  int32_t device = current_device;
  uint64_t recorded = 0, come = 0;
  int32_t queried = 0;       ///< since it was recorded
  std::chrono::steady_clock::time_point at;
};
using EventHandle = std::shared_ptr<Event>;

std::recursive_mutex mutex;  ///< of all below; held while a late stream runs
std::set<Stream*> streams;
int32_t late_queries = 0;
Stream unnamed;              ///< the null stream, which is not late
std::atomic<uint64_t> launch_count{0};

struct Capture {
  Stream* stream;
  std::vector<Work> works;
  bool is_void = false;  ///< something was refused
};
/// Of this thread.
thread_local std::optional<Capture> capture;
using Graph = std::shared_ptr<const std::vector<Work>>;

Stream& stream_of(MoestroCudaStream stream) { return stream == nullptr ? unnamed : *static_cast<Stream*>(stream); }
const EventHandle& event_of(MoestroCudaEvent event) { return *static_cast<EventHandle*>(event); }

void run_next(Stream& stream) {
  const Work work = std::move(stream.queued.front());
  stream.queued.pop_front();
  work();
}
void run_all_of(Stream& stream) {
  while (!stream.queued.empty()) run_next(stream);
}
void run_until(const Event& event, uint64_t record) {
  while (event.come < record) run_next(*event.stream);
}
/// Runs it, or queues it behind what is late.
void put(Stream& stream, Work work) {
  if (stream.queries > 0) stream.queued.push_back(std::move(work));
  else work();
}

}  // namespace

void make_streams_late(int32_t queries) {
  const std::lock_guard lock(mutex);
  late_queries = queries;
}
bool captures(MoestroCudaStream stream) { return capture && capture->stream == &stream_of(stream); }
MoestroCudaResult refused_in_capture() {
  if (!capture) return 0;
  capture->is_void = true;
  return kErrorWhileCapturing;
}
void use_device(int32_t index) { current_device = index; }
MoestroCudaResult refused_on_device(MoestroCudaStream stream) {
  return stream == nullptr || stream_of(stream).device == current_device ? 0 : kErrorOtherDevice;
}
uint64_t launches() { return launch_count; }
void count_launch(MoestroCudaStream stream) {
  if (!captures(stream)) ++launch_count;
}
bool keeps(MoestroCudaStream stream) { return captures(stream) || stream_of(stream).queries > 0; }
void keep(MoestroCudaStream stream, std::function<void()> work) {
  if (captures(stream)) return capture->works.push_back(std::move(work));
  const std::lock_guard lock(mutex);
  put(stream_of(stream), std::move(work));
}
void run_all() {
  const std::lock_guard lock(mutex);
  for (Stream* stream : streams) run_all_of(*stream);
}

MoestroCudaResult make_stream(int32_t, MoestroCudaStream* stream) {
  const std::lock_guard lock(mutex);
  auto* made = new Stream{late_queries, {}, current_device};
  streams.insert(made);
  *stream = made;
  return 0;
}
MoestroCudaResult end_stream(MoestroCudaStream stream) {
  const std::lock_guard lock(mutex);
  run_all_of(stream_of(stream));
  if (stream == nullptr) return 0;
  streams.erase(&stream_of(stream));
  delete &stream_of(stream);
  return 0;
}
MoestroCudaResult wait_stream(MoestroCudaStream stream) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  const std::lock_guard lock(mutex);
  run_all_of(stream_of(stream));
  return 0;
}

MoestroCudaResult make_event(int32_t, MoestroCudaEvent* event) {
  *event = new EventHandle(std::make_shared<Event>());
  return 0;
}
MoestroCudaResult end_event(MoestroCudaEvent event) {
  const std::lock_guard lock(mutex);
  delete static_cast<EventHandle*>(event);
  return 0;
}
MoestroCudaResult record_event(MoestroCudaEvent event, MoestroCudaStream stream) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  const std::lock_guard lock(mutex);
  Event& recorded = *event_of(event);
  if (stream != nullptr && recorded.device != stream_of(stream).device) return kErrorOtherDevice;
  recorded.stream = &stream_of(stream);
  recorded.queried = 0;
  put(*recorded.stream, [handle = event_of(event), record = ++recorded.recorded] {
    handle->come = std::max(handle->come, record);  // it may have been recorded on another stream since
    handle->at = std::chrono::steady_clock::now();
  });
  return 0;
}
MoestroCudaResult query_event(MoestroCudaEvent event) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  const std::lock_guard lock(mutex);
  Event& asked = *event_of(event);
  if (asked.come < asked.recorded && ++asked.queried < asked.stream->queries) return MOESTRO_CUDA_NOT_READY;
  run_until(asked, asked.recorded);
  return 0;
}
MoestroCudaResult wait_event(MoestroCudaEvent event) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  const std::lock_guard lock(mutex);
  run_until(*event_of(event), event_of(event)->recorded);
  return 0;
}
MoestroCudaResult elapsed(float* ms, MoestroCudaEvent begin, MoestroCudaEvent end) {
  const std::lock_guard lock(mutex);
  const Event &from = *event_of(begin), &to = *event_of(end);
  if (from.come < from.recorded || to.come < to.recorded) return MOESTRO_CUDA_NOT_READY;
  *ms = std::chrono::duration<float, std::milli>(to.at - from.at).count();
  return 0;
}
MoestroCudaResult stream_waits(MoestroCudaStream stream, MoestroCudaEvent event) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  const std::lock_guard lock(mutex);
  put(stream_of(stream), [handle = event_of(event), of = event_of(event)->stream, record = event_of(event)->recorded] {
    while (handle->come < record) run_next(*of);
  });
  return 0;
}

MoestroCudaResult begin_capture(MoestroCudaStream stream) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  capture = Capture{&stream_of(stream), {}, false};
  return 0;
}
MoestroCudaResult end_capture(MoestroCudaStream stream, MoestroCudaGraph* graph) {
  if (!captures(stream)) return kErrorWhileCapturing;
  Capture ended = std::move(*capture);
  capture.reset();
  if (ended.is_void) return kErrorCaptureIsVoid;
  *graph = new Graph(std::make_shared<const std::vector<Work>>(std::move(ended.works)));
  return 0;
}
MoestroCudaResult launch_graph(MoestroCudaGraph graph, MoestroCudaStream stream) {
  if (const MoestroCudaResult refused = refused_in_capture()) return refused;
  if (const MoestroCudaResult refused = refused_on_device(stream)) return refused;
  count_launch(stream);
  const auto all = [works = *static_cast<Graph*>(graph)] {
    const DeviceAccess access;  // once for all of them
    for (const Work& work : *works) work();
  };
  if (keeps(stream)) keep(stream, all);
  else all();
  return 0;
}
MoestroCudaResult end_graph(MoestroCudaGraph graph) {
  delete static_cast<Graph*>(graph);
  return 0;
}

}  // namespace moestro::kernels::cuda::emulated

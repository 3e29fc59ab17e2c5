#include "services/worker/device/cuda_kv.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace moestro::device {
namespace {

constexpr auto kKvLook = std::chrono::microseconds(20);  ///< between two looks at copies in flight

}  // namespace

CudaKv::CudaKv(const CudaSlots& device, const Clock& clock, std::function<void(const Status&)> failed)
    : device_(device), clock_(clock), on_failure_(std::move(failed)) {}

Status CudaKv::make() {
  for (Way& way : ways_)
    if (const MoestroCudaResult result = device_.functions->make_stream(0, &way.stream); result != 0)
      return exhausted(words_of(device_, "make_stream", result) + ", for the KV of running sequences");
  return Status::ok();
}

CudaKv::~CudaKv() {
  abandon();
  for (const Way& way : ways_)
    if (way.stream != nullptr) (void)device_.functions->end_stream(way.stream);
  for (MoestroCudaEvent event : events_) (void)device_.functions->end_event(event);
}

bool CudaKv::call(const char* name, MoestroCudaResult result) {
  if (result == 0 && failure_.is_ok()) return true;
  if (failure_.is_ok()) on_failure_(failure_ = fell_off(device_, name, result));
  return false;
}

MoestroCudaEvent CudaKv::obtain_event() {
  MoestroCudaEvent event = nullptr;
  if (events_.empty()) {
    (void)call("make_event", device_.functions->make_event(MOESTRO_CUDA_EVENT_TIMED, &event));
    return event;
  }
  event = events_.back();
  events_.pop_back();
  return event;
}

void CudaKv::give_back(const Job& job) {
  for (MoestroCudaEvent event : {job.begin, job.end})
    if (event != nullptr) events_.push_back(event);
}

void CudaKv::begin(lanes::TaskId id, const lanes::Task& task, int32_t /*moe_layer*/,
                   std::span<const engine::KvMove> moves) {
  const MoestroCudaFunctions& cuda = *device_.functions;
  Way& way = way_of(task.lane);
  const bool in = task.lane == lanes::Lane::kHostToDevice;
  Job job{.id = id,
          .carried = {.kind = task.kind, .lane = task.lane, .layer = task.layer, .micro_batch = task.micro_batch},
          .begin = obtain_event(),
          .end = obtain_event()};
  bool queued = failure_.is_ok() && call("record_event", cuda.record_event(job.begin, way.stream));
  for (const engine::KvMove& m : moves) {
    const auto bytes = static_cast<uint64_t>(m.bytes);
    job.carried.bytes += m.bytes;
    queued = queued && (in ? call("copy_in", cuda.copy_in(m.to, m.from, bytes, way.stream))
                           : call("copy_out", cuda.copy_out(m.to, m.from, bytes, way.stream)));
  }
  if (queued) (void)call("record_event", cuda.record_event(job.end, way.stream));
  way.jobs.push_back(job);
}

void CudaKv::end_elsewhere(lanes::TaskId id) {
  const std::lock_guard lock(mutex_);
  elsewhere_.push_back(id);
}

bool CudaKv::has_ended(const Way& way) {
  if (way.jobs.empty() || !failure_.is_ok()) return false;
  const MoestroCudaResult reached = device_.functions->query_event(way.jobs.front().end);
  return reached != MOESTRO_CUDA_NOT_READY && call("query_event", reached);
}

/// Tasks of a lane follow one another on its stream; they are only noticed a little late.
void CudaKv::end_first(Way& way, std::vector<lanes::TaskId>& ended) {
  Job& job = way.jobs.front();
  float ms = 0;
  (void)call("elapsed", device_.functions->elapsed(&ms, job.begin, job.end));
  const Nanos now = clock_.now(), took(static_cast<int64_t>(static_cast<double>(ms) * 1e6));
  job.carried.begin = std::max(now - took, std::exchange(way.last_end, now));
  job.carried.end = now;
  carried_.push_back(job.carried);
  ended.push_back(job.id);
  give_back(job);
  way.jobs.pop_front();
}

void CudaKv::take_ended(std::vector<lanes::TaskId>& ended) {
  for (Way& way : ways_)
    while (has_ended(way)) end_first(way, ended);
  const std::lock_guard lock(mutex_);
  ended.insert(ended.end(), elsewhere_.begin(), elsewhere_.end());
  elsewhere_.clear();
}

void CudaKv::wait(std::chrono::milliseconds timeout) {
  const auto some = [this] {
    const std::lock_guard lock(mutex_);
    return !elsewhere_.empty();
  };
  const Nanos until = clock_.now() + timeout;
  while (failure_.is_ok() && !some() && !std::ranges::any_of(ways_, [this](const Way& w) { return has_ended(w); }) &&
         clock_.now() < until)
    std::this_thread::sleep_for(kKvLook);
}

/// A device that has failed touches nothing.
void CudaKv::abandon() {
  for (Way& way : ways_) {
    if (way.stream != nullptr) (void)device_.functions->wait_stream(way.stream);
    for (const Job& job : way.jobs) give_back(job);
    way.jobs.clear();
  }
  const std::lock_guard lock(mutex_);
  elsewhere_.clear();
}

void CudaKv::take_carried(std::vector<engine::KvCarried>& out) {
  out.insert(out.end(), carried_.begin(), carried_.end());
  carried_.clear();
}

}  // namespace moestro::device

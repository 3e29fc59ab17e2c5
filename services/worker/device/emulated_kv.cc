#include "services/worker/device/emulated_kv.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/sharp_wait.h"

namespace moestro::device {
namespace {

constexpr int64_t kChunkBytes = int64_t{1} << 20;  ///< as the tier's: an expert waits no longer for KV

}  // namespace

EmulatedKv::EmulatedKv(const Options& options, const Clock& clock, std::mutex& mutex, std::function<void()> wake,
                       std::function<void()> ended)
    : options_(options),
      clock_(clock),
      mutex_(mutex),
      wake_(std::move(wake)),
      on_end_(std::move(ended)),
      thread_([this] { run_out(); }) {}

EmulatedKv::~EmulatedKv() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  out_work_.notify_one();
  thread_.join();
}

// --- the thread that runs the steps ---

void EmulatedKv::begin(lanes::TaskId id, const lanes::Task& task, int32_t moe_layer,
                       std::span<const engine::KvMove> moves) {
  const bool in = task.lane == lanes::Lane::kHostToDevice;
  {
    const std::lock_guard lock(mutex_);
    (in ? in_ : out_).jobs.push_back({.id = id,
                                      .kind = task.kind,
                                      .lane = task.lane,
                                      .layer = task.layer,
                                      .micro_batch = task.micro_batch,
                                      .moe_layer = moe_layer,
                                      .moves = moves});
  }
  if (in) wake_();
  else out_work_.notify_one();
}

void EmulatedKv::end_elsewhere(lanes::TaskId id) {
  const std::lock_guard lock(mutex_);
  ended_.push_back(id);
  on_end_();
  changed_.notify_all();
}

void EmulatedKv::take_ended(std::vector<lanes::TaskId>& ended) {
  const std::lock_guard lock(mutex_);
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
}

void EmulatedKv::wait(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return !ended_.empty(); });
}

void EmulatedKv::abandon() {
  std::unique_lock lock(mutex_);
  for (Way* way : {&in_, &out_}) {
    // Only the chunk that is being carried is waited for.
    if (way->jobs.size() > 1) way->jobs.erase(way->jobs.begin() + 1, way->jobs.end());
    if (way->carrying) way->jobs.front().moves.end();
    else way->jobs.clear();
    changed_.wait(lock, [&] { return !way->carrying; });
    way->jobs.clear();
  }
  ended_.clear();
}

void EmulatedKv::take_carried(std::vector<engine::KvCarried>& out) {
  const std::lock_guard lock(mutex_);
  close(in_);
  close(out_);
  out.insert(out.end(), carried_.begin(), carried_.end());
  carried_.clear();
}

// --- the link ---

bool EmulatedKv::comes_first(std::optional<int32_t> waiting_layer) const {
  return has_more_to_bring() && !(waiting_layer && *waiting_layer < in_.jobs.front().moe_layer);
}

int64_t EmulatedKv::take_chunk(Job& job, std::vector<engine::KvMove>& chunk) {
  chunk.clear();
  int64_t taken = 0;
  while (!job.moves.is_done() && taken < kChunkBytes) {
    chunk.push_back(job.moves.take(kChunkBytes - taken));
    taken += chunk.back().bytes;
  }
  return taken;
}

void EmulatedKv::carry(std::unique_lock<std::mutex>& lock, Way& way, Nanos from, Nanos& free_at) {
  Job& first = way.jobs.front();
  const Nanos begin = std::max(from, free_at);
  const Nanos latency = std::exchange(first.begun, true) ? Nanos(0) : options_.latency;
  const int64_t bytes = take_chunk(first, way.chunk);
  free_at = begin + latency +
            Nanos(static_cast<int64_t>(static_cast<double>(bytes) * 1e9 / static_cast<double>(options_.bytes_per_s)));
  way.carrying = true;
  lock.unlock();
  for (const engine::KvMove& m : way.chunk) std::memcpy(m.to, m.from, static_cast<size_t>(m.bytes));
  wait_sharply_until(clock_, free_at);
  lock.lock();
  way.carrying = false;
  note(way, way.jobs.front(), bytes, begin, free_at);
  if (way.jobs.front().moves.is_done()) {
    ended_.push_back(way.jobs.front().id);
    way.jobs.erase(way.jobs.begin());
    on_end_();
  }
  changed_.notify_all();
}

void EmulatedKv::close(Way& way) {
  if (way.open) carried_.push_back(*std::exchange(way.open, std::nullopt));
}

void EmulatedKv::note(Way& way, const Job& job, int64_t bytes, Nanos begin, Nanos end) {
  if (way.open && (way.open->kind != job.kind || way.open->layer != job.layer ||
                   way.open->micro_batch != job.micro_batch || way.open->end != begin))
    close(way);
  if (!way.open)
    way.open = engine::KvCarried{.kind = job.kind,
                                 .lane = job.lane,
                                 .layer = job.layer,
                                 .micro_batch = job.micro_batch,
                                 .begin = begin};
  way.open->bytes += bytes;
  way.open->end = end;
}

void EmulatedKv::run_out() {
  prctl(PR_SET_TIMERSLACK, 1UL);  // as the link's own thread
  std::unique_lock lock(mutex_);
  Nanos free_at{0};
  while (true) {
    const bool idle = out_.jobs.empty();
    out_work_.wait(lock, [this] { return stop_ || !out_.jobs.empty(); });
    if (stop_) return;
    // What was queued follows without a gap, so that late wake-ups do not add up.
    carry(lock, out_, idle ? clock_.now() : free_at, free_at);
  }
}

}  // namespace moestro::device

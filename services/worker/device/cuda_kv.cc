#include "services/worker/device/cuda_kv.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace moestro::device {
namespace {

constexpr auto kKvLook = std::chrono::microseconds(20);  ///< between two looks at copies in flight

}  // namespace

CudaKv::CudaKv(const CudaSlots& device, const Clock& clock, Calls calls)
    : device_(device),
      clock_(clock),
      calls_(std::move(calls)),
      piece_bytes_(device.chunk_bytes > 0 ? static_cast<int64_t>(device.chunk_bytes) : kPieceBytes),
      ahead_bytes_(device.chunk_bytes > 0 ? 2 * piece_bytes_ : kAheadBytes) {
  way_of(lanes::Lane::kHostToDevice).in = true;
}

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
  if (failure_.is_ok()) calls_.failed(failure_ = fell_off(device_, name, result));
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

void CudaKv::give_back(const Piece& piece) {
  for (MoestroCudaEvent event : {piece.begin, piece.end})
    if (event != nullptr) events_.push_back(event);
}

void CudaKv::begin(lanes::TaskId id, const lanes::Task& task, int32_t moe_layer,
                   std::span<const engine::KvMove> moves) {
  Way& way = way_of(task.lane);
  Job job{.id = id,
          .carried = {.kind = task.kind, .lane = task.lane, .layer = task.layer, .micro_batch = task.micro_batch},
          .moe_layer = moe_layer,
          .moves = moves};
  for (const engine::KvMove& m : moves) job.left += m.bytes;
  way.jobs.push_back(job);
  fill(way);
}

void CudaKv::end_elsewhere(lanes::TaskId id) {
  const std::lock_guard lock(mutex_);
  elsewhere_.push_back(id);
}

// --- queued ---

void CudaKv::fill(Way& way) {
  while (failure_.is_ok() && way.queued < way.jobs.size()) {
    Job& job = way.jobs[way.queued];
    const int64_t bytes = std::min(job.left, piece_bytes_);
    if (way.ahead + bytes > ahead_bytes_ || (way.in && calls_.gives_way(job.moe_layer))) return;
    queue_piece(way, job, bytes);
    way.queued += job.left == 0 ? 1 : 0;
  }
}

void CudaKv::queue_piece(Way& way, Job& job, int64_t bytes) {
  const MoestroCudaFunctions& cuda = *device_.functions;
  Piece piece{.bytes = bytes, .last = bytes == job.left, .end = obtain_event()};
  bool queued = failure_.is_ok();
  // Timed events cost the copy engine some microseconds: what follows another piece at once has one.
  if (way.pieces.empty()) {
    piece.begin = obtain_event();
    queued = queued && call("record_event", cuda.record_event(piece.begin, way.stream));
  }
  for (int64_t left = bytes; left > 0;) {
    const engine::KvMove part = job.moves.take(left);
    const auto count = static_cast<uint64_t>(part.bytes);
    queued = queued && (way.in ? call("copy_in", cuda.copy_in(part.to, part.from, count, way.stream))
                               : call("copy_out", cuda.copy_out(part.to, part.from, count, way.stream)));
    left -= part.bytes;
  }
  if (queued) (void)call("record_event", cuda.record_event(piece.end, way.stream));
  job.left -= bytes, way.ahead += bytes;
  way.pieces.push_back(piece);
}

// --- what has arrived ---

bool CudaKv::has_arrived(const Way& way) {
  if (way.pieces.empty() || !failure_.is_ok()) return false;
  const MoestroCudaResult reached = device_.functions->query_event(way.pieces.front().end);
  return reached != MOESTRO_CUDA_NOT_READY && call("query_event", reached);
}

/// Pieces of a lane follow one another on its stream; they are only noticed a little late.
void CudaKv::end_piece(Way& way) {
  const Piece piece = way.pieces.front();
  way.pieces.pop_front();
  way.ahead -= piece.bytes;
  Job& job = way.jobs.front();
  const Nanos now = clock_.now();
  Nanos began = way.last_end;
  if (piece.begin != nullptr) {
    float ms = 0;
    (void)call("elapsed", device_.functions->elapsed(&ms, piece.begin, piece.end));
    began = std::max(began, now - Nanos(static_cast<int64_t>(static_cast<double>(ms) * 1e6)));
    if (job.carried.bytes > 0) {  // the stretch before it has ended
      carried_.push_back(job.carried);
      job.carried.bytes = 0;
    }
  }
  if (job.carried.bytes == 0) job.carried.begin = began;
  job.carried.bytes += piece.bytes;
  job.carried.end = way.last_end = now;
  give_back(piece);
  if (!piece.last) return;
  carried_.push_back(job.carried);
  ended_.push_back(job.id);
  way.jobs.pop_front();
  --way.queued;
}

void CudaKv::look() {
  for (Way& way : ways_) {
    while (has_arrived(way)) end_piece(way);
    fill(way);
  }
}

void CudaKv::take_ended(std::vector<lanes::TaskId>& ended) {
  look();
  ended.insert(ended.end(), ended_.begin(), ended_.end());
  ended_.clear();
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
  for (look(); failure_.is_ok() && ended_.empty() && !some() && clock_.now() < until; look())
    std::this_thread::sleep_for(kKvLook);
}

/// A device that has failed touches nothing.
void CudaKv::abandon() {
  for (Way& way : ways_) {
    if (way.stream != nullptr) (void)device_.functions->wait_stream(way.stream);
    for (const Piece& piece : way.pieces) give_back(piece);
    way.pieces.clear();
    way.jobs.clear();
    way.queued = 0, way.ahead = 0;
  }
  ended_.clear();
  const std::lock_guard lock(mutex_);
  elsewhere_.clear();
}

void CudaKv::take_carried(std::vector<engine::KvCarried>& out) {
  out.insert(out.end(), carried_.begin(), carried_.end());
  carried_.clear();
}

}  // namespace moestro::device

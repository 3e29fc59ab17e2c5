#include "kernels/cuda/device_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"

namespace moestro::kernels::cuda {
namespace {

constexpr uint64_t kLeastBytes = 4096;

/// Grown by halves, so that a slowly growing batch does not allocate at every step.
uint64_t room_for(uint64_t bytes, uint64_t before) { return std::max({bytes, before + before / 2, kLeastBytes}); }

}  // namespace

StagingRing::~StagingRing() {
  (void)queue_.functions.wait_stream(queue_.stream);
  for (Buffer& buffer : buffers_) {
    if (buffer.host != nullptr) (void)queue_.functions.release_pinned(buffer.host);
    if (buffer.read != nullptr) (void)queue_.functions.end_event(buffer.read);
  }
}

bool StagingRing::make_room() {
  const MoestroCudaFunctions& f = queue_.functions;
  if (Buffer& full = buffers_[turn_]; full.used == kBufferBytes) {
    if (!queue_.note("record_event", f.record_event(full.read, queue_.stream))) return false;
    turn_ = (turn_ + 1) % kBuffers;
    Buffer& next = buffers_[turn_];
    if (next.host != nullptr && !queue_.note("wait_event", f.wait_event(next.read))) return false;
    next.used = 0;
  }
  Buffer& buffer = buffers_[turn_];
  if (buffer.host != nullptr) return queue_.error == 0;
  void* host = nullptr;
  if (!queue_.note("make_event", f.make_event(0, &buffer.read)) ||
      !queue_.note("allocate_pinned", f.allocate_pinned(kBufferBytes, &host)))
    return false;
  buffer.host = static_cast<std::byte*>(host);
  return true;
}

void StagingRing::copy_in(void* device, const void* host, uint64_t bytes) {
  MOESTRO_CHECK(!queue_.capturing, "a graph would read a buffer that is written anew");
  for (uint64_t done = 0; done < bytes;) {
    if (queue_.error != 0 || !make_room()) return;
    Buffer& buffer = buffers_[turn_];
    const uint64_t piece = std::min(bytes - done, kBufferBytes - buffer.used);
    std::memcpy(buffer.host + buffer.used, static_cast<const std::byte*>(host) + done, piece);
    queue_.note("copy_in", queue_.functions.copy_in(static_cast<std::byte*>(device) + done, buffer.host + buffer.used,
                                                    piece, queue_.stream));
    buffer.used += piece;
    done += piece;
  }
}

Workspace::~Workspace() {
  if (memory_ != nullptr) (void)queue_.functions.release(memory_);
}

void* Workspace::at_least(uint64_t bytes) {
  if (queue_.error != 0) return nullptr;
  if (bytes <= bytes_) return memory_;
  MOESTRO_CHECK(!queue_.capturing, "memory grows outside of graphs");
  const uint64_t room = room_for(bytes, bytes_);
  bytes_ = 0;
  ++queue_.moves;
  if (!queue_.note("wait_stream", queue_.functions.wait_stream(queue_.stream))) return nullptr;
  if (memory_ != nullptr && !queue_.note("release", queue_.functions.release(std::exchange(memory_, nullptr))))
    return nullptr;
  if (!queue_.note("allocate", queue_.functions.allocate(room, &memory_))) return nullptr;
  bytes_ = room;
  return memory_;
}

Mirror::~Mirror() {
  (void)queue_.functions.wait_stream(queue_.stream);
  for (Copy& copy : copies_) free(copy);
}

void Mirror::free(Copy& copy) {
  if (copy.host != nullptr) (void)queue_.functions.release_pinned(copy.host);
  if (copy.sent != nullptr) (void)queue_.functions.end_event(copy.sent);
  copy = {};
}

bool Mirror::make_room(Copy& copy, size_t bytes) {
  const MoestroCudaFunctions& f = queue_.functions;
  if (copy.room > 0 && !queue_.note("wait_event", f.wait_event(copy.sent))) return false;
  if (bytes <= copy.room) return true;
  const uint64_t room = room_for(bytes, copy.room);
  free(copy);
  if (!queue_.note("allocate_pinned", f.allocate_pinned(room, &copy.host)) ||
      !queue_.note("make_event", f.make_event(0, &copy.sent)))
    return false;
  copy.room = room;
  return true;
}

const void* Mirror::bytes_of(std::span<const std::byte> bytes) {
  if (bytes.empty() || queue_.error != 0) return nullptr;
  if (bytes_ == bytes.size() && std::memcmp(copies_[last_].host, bytes.data(), bytes.size()) == 0)
    return device_.at_least(bytes_);
  MOESTRO_CHECK(!queue_.capturing, "what a graph reads is sent before it is captured");
  bytes_ = 0;
  void* device = device_.at_least(bytes.size());
  last_ = (last_ + 1) % kCopies;
  Copy& copy = copies_[last_];
  if (device == nullptr || !make_room(copy, bytes.size())) return nullptr;
  std::memcpy(copy.host, bytes.data(), bytes.size());
  const MoestroCudaFunctions& f = queue_.functions;
  if (!queue_.note("copy_in", f.copy_in(device, copy.host, bytes.size(), queue_.stream)) ||
      !queue_.note("record_event", f.record_event(copy.sent, queue_.stream)))
    return nullptr;
  bytes_ = bytes.size();
  return device;
}

}  // namespace moestro::kernels::cuda

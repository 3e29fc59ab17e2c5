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

const void* Mirror::bytes_of(std::span<const std::byte> bytes) {
  if (bytes.empty() || queue_.error != 0) return nullptr;
  if (last_.size() == bytes.size() && std::memcmp(last_.data(), bytes.data(), bytes.size()) == 0)
    return device_.at_least(bytes.size());
  MOESTRO_CHECK(!queue_.capturing, "what a graph reads is sent before it is captured");
  last_.clear();
  void* device = device_.at_least(bytes.size());
  if (device == nullptr) return nullptr;
  staging_.copy_in(device, bytes.data(), bytes.size());
  if (queue_.error != 0) return nullptr;
  last_.assign(bytes.begin(), bytes.end());
  return device;
}

}  // namespace moestro::kernels::cuda

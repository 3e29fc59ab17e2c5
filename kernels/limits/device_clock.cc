#include "kernels/limits/device_clock.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "common/float16.h"

namespace moestro::kernels::limits {

DeviceClock::DeviceClock(const MoestroCudaFunctions& functions, MoestroCudaStream stream)
    : functions_(functions), stream_(stream) {
  if (stream_ == nullptr) own_stream_ = note("make_stream", functions_.make_stream(1, &stream_));
  if (status_.is_ok()) note("make_event", functions_.make_event(MOESTRO_CUDA_EVENT_TIMED, &begin_));
  if (status_.is_ok()) note("make_event", functions_.make_event(MOESTRO_CUDA_EVENT_TIMED, &end_));
}

DeviceClock::~DeviceClock() {
  if (stream_ != nullptr) (void)functions_.wait_stream(stream_);
  for (void* memory : memory_) (void)functions_.release(memory);
  for (void* memory : pinned_) (void)functions_.release_pinned(memory);
  if (begin_ != nullptr) (void)functions_.end_event(begin_);
  if (end_ != nullptr) (void)functions_.end_event(end_);
  if (own_stream_) (void)functions_.end_stream(stream_);
}

bool DeviceClock::note(const char* call, MoestroCudaResult result) {
  if (status_.is_ok() && result != 0) status_ = unavailable(std::string(call) + ": " + functions_.error_text(result));
  return status_.is_ok();
}

void* DeviceClock::allocate(uint64_t bytes) {
  void* memory = nullptr;
  if (!status_.is_ok() || !note("allocate", functions_.allocate(bytes, &memory))) return nullptr;
  memory_.push_back(memory);
  return memory;
}

void* DeviceClock::pinned(uint64_t bytes) {
  void* memory = nullptr;
  if (!status_.is_ok() || !note("allocate_pinned", functions_.allocate_pinned(bytes, &memory))) return nullptr;
  pinned_.push_back(memory);
  return memory;
}

void* DeviceClock::copy_of(std::span<const std::byte> bytes) {
  void* memory = allocate(bytes.size());
  if (memory != nullptr && note("copy_in", functions_.copy_in(memory, bytes.data(), bytes.size(), stream_)))
    note("wait_stream", functions_.wait_stream(stream_));
  return memory;
}

void* DeviceClock::random_bf16(uint64_t bytes, float most) {
  std::vector<uint16_t> piece(std::min<uint64_t>(bytes, 8 << 20) / sizeof(uint16_t));
  std::mt19937 random(7);
  for (uint16_t& number : piece) number = f32_to_bf16((static_cast<float>(random() >> 8) / 8388608.0f - 1.0f) * most);
  auto* memory = static_cast<std::byte*>(allocate(bytes));
  const uint64_t piece_bytes = piece.size() * sizeof(uint16_t);
  for (uint64_t at = 0; memory != nullptr && at < bytes && status_.is_ok(); at += piece_bytes)
    note("copy_in", functions_.copy_in(memory + at, piece.data(), std::min(piece_bytes, bytes - at), stream_));
  if (status_.is_ok()) note("wait_stream", functions_.wait_stream(stream_));
  return memory;
}

double DeviceClock::seconds(const std::function<void()>& work, int times) {
  if (!status_.is_ok() || !note("wait_stream", functions_.wait_stream(stream_))) return 0;
  const auto began = std::chrono::steady_clock::now();
  note("record_event", functions_.record_event(begin_, stream_));
  for (int i = 0; i < times; ++i) work();
  note("record_event", functions_.record_event(end_, stream_));
  note("wait_event", functions_.wait_event(end_));
  float ms = 0;
  if (!status_.is_ok() || !note("elapsed", functions_.elapsed(&ms, begin_, end_))) return 0;
  const double host = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return (ms > 0 ? static_cast<double>(ms) / 1e3 : host) / times;  // an emulated event has no time
}

int DeviceClock::times_for(const std::function<void()>& work, double least) {
  seconds(work);
  const double once = seconds(work);
  return once > 0 ? static_cast<int>(std::clamp(least / once, 1.0, 200.0)) : 1;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double smallest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

}  // namespace moestro::kernels::limits

#include "services/worker/device/arena_registration.h"

#include <algorithm>
#include <chrono>

#include "common/config/units.h"
#include "common/log.h"

namespace moestro::device {
namespace {

constexpr std::chrono::seconds kProgress{5};

}  // namespace

ArenaRegistration::ArenaRegistration(const CudaSlots& device, std::span<const std::byte> memory, bool writable,
                                     uint64_t piece_bytes)
    : device_(device), memory_(memory), piece_bytes_(piece_bytes), writable_(writable) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  Clock::time_point said = begin;
  while (registered_bytes_ < memory_.size() &&
         add(memory_.subspan(registered_bytes_, std::min(piece_bytes_, memory_.size() - registered_bytes_))))
    if (Clock::now() - said >= kProgress && registered_bytes_ < memory_.size()) {
      said = Clock::now();
      log::info("{} of {} of the store's memory are registered with cuda:{}", config::readable_size(registered_bytes_),
                config::readable_size(memory_.size()), device_.index);
    }
  if (!is_whole()) {
    log::warn("{}", describe());
    return;
  }
  log::info("{}, in {:.1f} s", describe(), std::chrono::duration<double>(Clock::now() - begin).count());
}

ArenaRegistration::~ArenaRegistration() {
  for (uint64_t at = 0; at < registered_bytes_; at += piece_bytes_)
    (void)device_.functions->unregister_host(const_cast<std::byte*>(memory_.data() + at));
}

bool ArenaRegistration::add(std::span<const std::byte> piece) {
  const MoestroCudaResult result =
      device_.functions->register_host(const_cast<std::byte*>(piece.data()), piece.size(), writable_ ? 0 : 1);
  if (result != 0) return refused_ = device_.functions->error_text(result), false;
  registered_bytes_ += piece.size();
  return true;
}

ArenaRegistration::Part ArenaRegistration::part(const std::byte* data, uint64_t bytes) const {
  if (data < memory_.data() || data >= memory_.data() + memory_.size()) return {bytes, false};
  const auto offset = static_cast<uint64_t>(data - memory_.data());
  if (offset >= registered_bytes_) return {bytes, false};
  const uint64_t piece_end = std::min((offset / piece_bytes_ + 1) * piece_bytes_, registered_bytes_);
  return {std::min(bytes, piece_end - offset), true};
}

std::string ArenaRegistration::describe() const {
  const std::string with = " with cuda:" + std::to_string(device_.index);
  if (memory_.empty())
    return "copies to cuda:" + std::to_string(device_.index) + " are staged: experts lie in no shared memory";
  const std::string all = config::readable_size(memory_.size());
  if (is_whole()) return all + " of the store's memory registered" + with + (writable_ ? "" : ", read-only");
  return config::readable_size(registered_bytes_) + " of the store's memory (" + all + ") registered" + with +
         ", copies from the rest are staged, which is slow: " + refused_ +
         (writable_ ? ""
                    : "; this worker cannot map it for writing: run it as the store's user, mount the arena writable, "
                      "and do not use --payload-dir memfd");
}

}  // namespace moestro::device

// What memory moves: device memory itself, and experts over the link.

#include <algorithm>
#include <array>
#include <cstring>

#include "common/expert_layout.h"
#include "common/shm/mapped_file.h"
#include "services/worker/device/cuda_slots.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

/// Memory as a worker has the store's arena: shared, mapped for writing, registered with the device, and then protected
/// from writes.
class RegisteredArena {
 public:
  explicit RegisteredArena(const MoestroCudaFunctions& functions) : functions_(functions) {}
  ~RegisteredArena() {
    if (registered_) (void)functions_.unregister_host(memory_.data());
  }
  RegisteredArena(const RegisteredArena&) = delete;
  RegisteredArena& operator=(const RegisteredArena&) = delete;

  /// What the driver refuses would be staged: an error.
  Status open(uint64_t bytes) {
    MOESTRO_ASSIGN_OR_RETURN(memory_, shm::MappedFile::anonymous("moestro-gpu-bench", bytes, 0600));
    std::memset(memory_.data(), 0x3c, bytes);
    const MoestroCudaResult result = functions_.register_host(memory_.data(), memory_.size(), 0);
    if (result != 0) return unavailable(std::string("register_host: ") + functions_.error_text(result));
    registered_ = true;
    return memory_.forbid_writes();
  }
  const std::byte* data() const { return memory_.data(); }

 private:
  const MoestroCudaFunctions& functions_;
  shm::MappedFile memory_;
  bool registered_ = false;
};

std::string size_text(uint64_t bytes) {
  const bool whole = bytes % (1 << 20) == 0;
  return whole ? std::to_string(bytes >> 20) + " MiB" : std::to_string(bytes >> 10) + " KiB";
}

/// Two chunks are queued; the next one when the first of them has arrived.
class Chunks {
 public:
  explicit Chunks(DeviceClock& clock) : clock_(clock) {
    for (MoestroCudaEvent& event : events_)
      if (clock_.status().is_ok())
        clock_.note("make_event", clock_.functions().make_event(MOESTRO_CUDA_EVENT_SLEEPING, &event));
  }
  ~Chunks() {
    for (const MoestroCudaEvent event : events_)
      if (event != nullptr) (void)clock_.functions().end_event(event);
  }
  Chunks(const Chunks&) = delete;
  Chunks& operator=(const Chunks&) = delete;

  void copy(std::byte* to, const std::byte* from, uint64_t bytes, uint64_t chunk) {
    const MoestroCudaFunctions& f = clock_.functions();
    for (uint64_t at = 0, i = 0; at < bytes && clock_.status().is_ok(); at += chunk, ++i) {
      if (i >= 2) clock_.note("wait_event", f.wait_event(events_[i % 2]));
      clock_.note("copy_in", f.copy_in(to + at, from + at, std::min(chunk, bytes - at), clock_.stream()));
      clock_.note("record_event", f.record_event(events_[i % 2], clock_.stream()));
    }
  }

 private:
  DeviceClock& clock_;
  std::array<MoestroCudaEvent, 2> events_{};
};

}  // namespace

Result<GpuRow> memory_row(const GpuBench& bench) {
  const uint64_t bytes = 2 * bench.sizes.stream_bytes;
  MOESTRO_ASSIGN_OR_RETURN(const auto limits, kernels::limits::DeviceLimits::create(bench.functions, bytes));
  double best = 0;
  std::string with;
  const auto offer = [&](double rate, const char* what) {
    if (rate > best) best = rate, with = what;
  };
  for (int i = 0; i <= bench.sizes.repeats && limits->status().is_ok(); ++i) {
    const double filled = limits->fill().rate(), copied = limits->copy().rate();
    if (i == 0 || !limits->status().is_ok()) continue;  // the first warms up
    offer(copied, "the best copy within it, bytes read and written");
    offer(filled, "the best fill");
  }
  MOESTRO_RETURN_IF_ERROR(limits->status());
  return GpuRow{.what = "device memory, " + size_text(bytes),
                .value = best / 1e9,
                .unit = "GB/s",
                .ceiling = best / 1e9,
                .ceiling_is = with,
                .aim = 0,
                .failed = ""};
}

std::vector<GpuRow> copy_rows(const GpuBench& bench) {
  const ExpertLayout layout(bench.sizes.hidden, bench.sizes.ffn, DType::kBF16);
  std::vector<GpuRow> rows;
  for (const uint64_t asked : bench.sizes.copies) {
    const uint64_t bytes = asked == 0 ? static_cast<uint64_t>(layout.bytes()) : asked,
                   chunk = device::CudaSlots{.chunk_bytes = bench.sizes.chunk_bytes}.chunk(bytes);
    GpuRow row{.what = "copy of " + size_text(bytes) + (asked == 0 ? ", an expert of bf16," : "") +
                       " from shared memory, chunks of " + size_text(chunk),
               .value = 0,
               .unit = "GB/s",
               .ceiling = 0,
               .ceiling_is = "the best copy of as much pinned memory",
               .aim = 0.97,
               .failed = ""};
    RegisteredArena arena(bench.functions);
    const Status opened = arena.open(bytes);
    DeviceClock clock(bench.functions);
    auto* to = static_cast<std::byte*>(clock.allocate(bytes));
    void* pinned = clock.pinned(bytes);
    if (pinned != nullptr) std::memset(pinned, 0x3c, bytes);
    Chunks chunks(clock);
    const auto chunked = [&] { chunks.copy(to, arena.data(), bytes, chunk); };
    const auto whole = [&] { clock.note("copy_in", bench.functions.copy_in(to, pinned, bytes, clock.stream())); };
    std::vector<double> ours, best;
    for (int i = 0; i <= bench.sizes.repeats && opened.is_ok() && clock.status().is_ok(); ++i) {
      const double took = clock.seconds(chunked), took_whole = clock.seconds(whole);
      if (i > 0) ours.push_back(took), best.push_back(took_whole);
    }
    if (!opened.is_ok()) row.failed = opened.message();
    else if (!clock.status().is_ok()) row.failed = clock.status().message();
    else {
      row.value = static_cast<double>(bytes) / median(ours) / 1e9;
      row.ceiling = static_cast<double>(bytes) / smallest(best) / 1e9;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace moestro::bench

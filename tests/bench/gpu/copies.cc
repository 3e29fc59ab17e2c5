// What memory moves: device memory itself, and experts over the link.

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "common/expert_layout.h"
#include "tests/bench/gpu/gpu_bench.h"

namespace moestro::bench {
namespace {

/// Memory like a store's arena: shared, and mapped once to be written and once to be read, as a worker has it.
/// Registered with the device.
class RegisteredArena {
 public:
  RegisteredArena(const MoestroCudaFunctions& functions, uint64_t bytes) : functions_(functions), bytes_(bytes) {}
  ~RegisteredArena() {
    if (registered_ != nullptr) (void)functions_.unregister_host(registered_);
    for (void* view : {written_, read_})
      if (view != MAP_FAILED) ::munmap(view, bytes_);
  }
  RegisteredArena(const RegisteredArena&) = delete;
  RegisteredArena& operator=(const RegisteredArena&) = delete;

  Status open() {
    const int fd = ::memfd_create("moestro-gpu-bench", 0);
    if (fd < 0) return io_error("memfd_create", errno);
    const bool sized = ::ftruncate(fd, static_cast<off_t>(bytes_)) == 0;
    if (sized) written_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (sized) read_ = ::mmap(nullptr, bytes_, PROT_READ, MAP_SHARED, fd, 0);
    const int error = errno;
    ::close(fd);
    if (written_ == MAP_FAILED || read_ == MAP_FAILED)
      return io_error("shared memory of " + std::to_string(bytes_) + " bytes", error);
    std::memset(written_, 0x3c, bytes_);
    // As a worker does: the mapping that it cannot write where the driver takes such, else one that it can.
    for (const auto& [view, read_only] : {std::pair(read_, 1), std::pair(written_, 0)}) {
      const MoestroCudaResult result = functions_.register_host(view, bytes_, read_only);
      if (result == 0) {
        registered_ = view;
        read_only_ = read_only == 1;
        return Status::ok();
      }
      refused_ = functions_.error_text(result);
    }
    return unavailable("register_host: " + refused_);
  }
  const std::byte* data() const { return static_cast<const std::byte*>(registered_); }
  const char* how() const { return read_only_ ? "registered read-only" : "registered"; }

 private:
  const MoestroCudaFunctions& functions_;
  uint64_t bytes_;
  void *written_ = MAP_FAILED, *read_ = MAP_FAILED, *registered_ = nullptr;
  bool read_only_ = false;
  std::string refused_;
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
      if (clock_.status().is_ok()) clock_.note("make_event", clock_.functions().make_event(0, &event));
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
    const uint64_t bytes = asked == 0 ? static_cast<uint64_t>(layout.bytes()) : asked;
    GpuRow row{.what = "copy of " + size_text(bytes) + (asked == 0 ? ", an expert of bf16," : "") +
                       " from shared memory, chunks of " + size_text(bench.sizes.chunk_bytes),
               .value = 0,
               .unit = "GB/s",
               .ceiling = 0,
               .ceiling_is = "the best copy of as much pinned memory",
               .aim = 0.97,
               .failed = ""};
    RegisteredArena arena(bench.functions, bytes);
    const Status opened = arena.open();
    DeviceClock clock(bench.functions);
    auto* to = static_cast<std::byte*>(clock.allocate(bytes));
    void* pinned = clock.pinned(bytes);
    if (pinned != nullptr) std::memset(pinned, 0x3c, bytes);
    Chunks chunks(clock);
    const auto chunked = [&] { chunks.copy(to, arena.data(), bytes, bench.sizes.chunk_bytes); };
    const auto whole = [&] { clock.note("copy_in", bench.functions.copy_in(to, pinned, bytes, clock.stream())); };
    std::vector<double> ours, best;
    for (int i = 0; i <= bench.sizes.repeats && opened.is_ok() && clock.status().is_ok(); ++i) {
      const double took = clock.seconds(chunked), took_whole = clock.seconds(whole);
      if (i > 0) ours.push_back(took), best.push_back(took_whole);
    }
    if (!opened.is_ok()) row.failed = opened.message();
    else if (!clock.status().is_ok()) row.failed = clock.status().message();
    else {
      row.what += std::string(", ") + arena.how();
      row.value = static_cast<double>(bytes) / median(ours) / 1e9;
      row.ceiling = static_cast<double>(bytes) / smallest(best) / 1e9;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace moestro::bench

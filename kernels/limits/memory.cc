#include "kernels/limits/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <vector>

#include "common/check.h"

namespace moestro::kernels::limits {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kFillChunk = kHugePage, kFillReport = int64_t{256} << 20;
constexpr int64_t kReadChunk = int64_t{4} << 20;

typedef unsigned long long Word;
typedef Word Line __attribute__((vector_size(64), aligned(8), may_alias));

constexpr size_t kPrefetchWords = 512;  // 4 KiB ahead: past what the hardware fetches by itself, as the kernels do

// Wide loads, four independent sums, prefetch: the loop waits for memory and for nothing else.
// Not with the thread sanitizer, whose runtime is not there yet when clones are resolved.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
__attribute__((target_clones("avx512f", "avx2", "default")))
#endif
Word sum_of(const Word* data, size_t words) {
  Line a = {}, b = {}, c = {}, d = {};
  size_t i = 0;
  for (; i + 32 <= words; i += 32) {
    const Line* line = reinterpret_cast<const Line*>(data + i);
    for (size_t k = 0; k < 32; k += 8) __builtin_prefetch(data + i + kPrefetchWords + k);
    a += line[0];
    b += line[1];
    c += line[2];
    d += line[3];
  }
  const Line all = a + b + c + d;
  Word total = 0;
  for (int k = 0; k < 8; ++k) total += all[k];
  for (; i < words; ++i) total += data[i];
  return total;
}

/// Small, finite and normal as bf16 and f16, in pairs as f32, as scales and as offsets: nothing slows a product down.
std::vector<uint16_t> noise() {
  std::vector<uint16_t> numbers(kFillChunk / 2);
  uint32_t state = 1;
  for (uint16_t& n : numbers) {
    state = state * 1664525u + 1013904223u;
    n = static_cast<uint16_t>(0x2c00u | (state >> 16 & 0x83ffu));
  }
  return numbers;
}

}  // namespace

Result<std::unique_ptr<StreamedMemory>> StreamedMemory::create(int64_t bytes, cpu::ThreadPool& pool,
                                                               const std::function<void(int64_t)>& progress) {
  std::unique_ptr<StreamedMemory> memory(new StreamedMemory());
  memory->bytes_ = round_up(std::max<int64_t>(bytes, 1), kHugePage);
  memory->mapped_ = static_cast<size_t>(memory->bytes_ + kHugePage);
  void* mapping = mmap(nullptr, memory->mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return exhausted("no memory for " + std::to_string(memory->bytes_) + " bytes to measure with");
  memory->mapping_ = mapping;
  memory->data_ = reinterpret_cast<char*>(round_up(reinterpret_cast<int64_t>(mapping), kHugePage));
  // In huge pages where the system gives them, as packs are: page walks are no part of what is measured.
  (void)madvise(memory->data_, static_cast<size_t>(memory->bytes_), MADV_HUGEPAGE);
  const std::vector<uint16_t> numbers = noise();
  for (int64_t first = 0; first < memory->bytes_; first += kFillReport) {
    const int64_t count = std::min(kFillReport, memory->bytes_ - first);
    pool.run(count / kFillChunk,
             [&](int64_t i, int) { std::memcpy(memory->data_ + first + i * kFillChunk, numbers.data(), kFillChunk); });
    if (progress) progress(first + count);
  }
  return memory;
}

StreamedMemory::~StreamedMemory() {
  if (mapping_ != nullptr) munmap(mapping_, mapped_);
}

void StreamedMemory::read(int64_t first, int64_t count, cpu::ThreadPool& pool) const {
  MOESTRO_CHECK(first >= 0 && count >= 0 && first + count <= bytes_, "a stretch of this memory");
  std::atomic<Word> total{0};  // so that the sums are not for nothing
  pool.run(ceil_div(count, kReadChunk), [&](int64_t i, int) {
    const int64_t begin = i * kReadChunk, size = std::min(kReadChunk, count - begin);
    total += sum_of(reinterpret_cast<const Word*>(data_ + first + begin), static_cast<size_t>(size) / sizeof(Word));
  });
  const Word sum = total.load();
  asm volatile("" : : "r"(sum));
}

Weight StreamedMemory::weight(int64_t first, int64_t bytes_max, DType dtype, int64_t cols, int64_t& used) const {
  const int64_t row = row_bytes(dtype, cols), parameters = parameter_bytes(dtype, cols);
  // Noise will do for signs, mantissas and codes. The codes' exponents are those of small normal numbers, as the
  // noise's own; there are no exceptions.
  static constexpr auto kExponents = [] {
    std::array<std::byte, bf16_in_12::exponents_bytes(0, 0)> part{};
    for (int64_t code = 0; code < bf16_in_12::kCodes; ++code)
      part[static_cast<size_t>(code)] = static_cast<std::byte>(100 + code);
    return part;
  }();
  MOESTRO_CHECK(row > 0, "the format of one matrix");
  const int64_t rows = std::max<int64_t>(1, bytes_max / (row + parameters));
  used = rows * (row + parameters);
  MOESTRO_CHECK(first >= 0 && first + used <= bytes_, "a weight within this memory");
  if (dtype == DType::kBF16In12)
    return {data_ + first, dtype, rows, cols, reinterpret_cast<const uint16_t*>(kExponents.data())};
  return {data_ + first, dtype, rows, cols,
          parameters > 0 ? reinterpret_cast<const uint16_t*>(data_ + first + rows * row) : nullptr};
}

}  // namespace moestro::kernels::limits

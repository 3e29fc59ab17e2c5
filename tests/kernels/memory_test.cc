// Memory of the host for buffers.

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "kernels/memory.h"

namespace moestro::kernels {
namespace {

long page_faults() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(HostMemory, BuffersAreAlignedAndEmpty) {
  Buffers buffers(host_memory());
  for (const int64_t bytes : {int64_t{1}, int64_t{4096}, (int64_t{2} << 20) - 1, (int64_t{2} << 20) + 1}) {
    const auto* const data = buffers.make<char>(bytes);
    ASSERT_NE(data, nullptr) << bytes;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
    EXPECT_TRUE(std::all_of(data, data + bytes, [](char c) { return c == 0; })) << bytes;
  }
}

/// A KV cache of a gigabyte is a quarter of a million pages of 4 KiB: seconds of a worker's start.
TEST(HostMemory, LargeBuffersAreBackedByHugePages) {
  std::string modes;
  std::getline(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"), modes);
  if (modes.empty() || modes.find("[never]") != std::string::npos) GTEST_SKIP() << "no transparent huge pages here";
  constexpr int64_t kBytes = int64_t{64} << 20;
  Buffers buffers(host_memory());
  const long before = page_faults();
  ASSERT_NE(buffers.make<char>(kBytes), nullptr);
  EXPECT_LT(page_faults() - before, kBytes / 4096 / 2) << "at most half of it in pages of 4 KiB";
}

}  // namespace
}  // namespace moestro::kernels

// What is freed goes back to the system, whatever else came and went.

#include "orchestrator/heap_trim.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

namespace moestro::orchestrator {
namespace {

constexpr size_t kPieces = 1000, kPieceBytes = 64 << 10;
constexpr size_t kLargeBytes = 256 << 20;

size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total_pages = 0, resident_pages = 0;
  statm >> total_pages >> resident_pages;
  return resident_pages * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

using Piece = std::unique_ptr<char[]>;

Piece touched(size_t bytes) {
  auto piece = std::make_unique_for_overwrite<char[]>(bytes);
  std::memset(piece.get(), 1, bytes);
  return piece;
}

/// Uses and frees many pieces. Between each two is one that stays, so that the heap cannot become shorter.
void use_and_free(std::vector<Piece>& staying) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < kPieces; ++i) {
    pieces.push_back(touched(kPieceBytes));
    staying.push_back(touched(64));
  }
}

bool soon_at_most(size_t bytes) {
  for (int i = 0; i < 500 && resident_bytes() > bytes; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return resident_bytes() <= bytes;
}

TEST(HeapTrim, GivesBackWhatWasFreedAndUsedAndFreedAgain) {
  const HeapTrim trim(std::chrono::milliseconds(400));  // longer than what follows a look takes
  std::vector<Piece> staying;
  const size_t before = resident_bytes();
  const size_t after_max = before + kPieces * kPieceBytes / 4;
  use_and_free(staying);
  EXPECT_TRUE(soon_at_most(after_max)) << resident_bytes() - before;
  {
    const Piece large = touched(kLargeBytes);
    use_and_free(staying);
    // Until it is looked at beside the large piece, and the free pieces are given back.
    EXPECT_TRUE(soon_at_most(after_max + kLargeBytes)) << resident_bytes() - before;
    use_and_free(staying);
  }
  EXPECT_TRUE(soon_at_most(after_max)) << "as many bytes are free as before, and less is resident than before; yet "
                                       << resident_bytes() - before << " bytes can go";
}

}  // namespace
}  // namespace moestro::orchestrator

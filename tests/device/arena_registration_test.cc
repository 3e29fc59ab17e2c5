// Host memory registered with a CUDA device in pieces, as far as it lets itself be registered.

#include "services/worker/device/arena_registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "kernels/cuda/emulated/functions.h"

namespace moestro::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kPiece = 4096;

/// What a driver has registered, and what it refuses.
struct Driver {
  std::map<const void*, uint64_t> registered;
  int asked = 0, read_only = 0, unregistered = 0;
  bool refuses_read_only = false;
  size_t pieces_max = 1000;
};
Driver driver;

class ArenaRegistrationTest : public ::testing::Test {
 protected:
  ArenaRegistrationTest() : functions_(kernels::cuda::emulated::functions()), memory_(3 * kPiece + 100) {
    driver = {};
    functions_.register_host = [](void* host, uint64_t bytes, int32_t read_only) -> MoestroCudaResult {
      ++driver.asked;
      if ((driver.refuses_read_only && read_only != 0) || driver.registered.size() >= driver.pieces_max) return 801;
      driver.read_only += read_only;
      EXPECT_TRUE(driver.registered.emplace(host, bytes).second) << "twice";
      return 0;
    };
    functions_.unregister_host = [](void* host) -> MoestroCudaResult {
      EXPECT_EQ(driver.registered.erase(host), 1u);
      ++driver.unregistered;
      return 0;
    };
    device_ = {.functions = &functions_, .index = 3};
  }
  ~ArenaRegistrationTest() override { EXPECT_TRUE(driver.registered.empty()); }

  /// Whether each copy that `part` allows for [offset, offset + bytes) lies in one registration, or in none.
  std::vector<uint64_t> parts(const ArenaRegistration& arena, uint64_t offset, uint64_t bytes, uint64_t registered) {
    std::vector<uint64_t> lengths;
    while (bytes > 0) {
      const auto part = arena.part(memory_.data() + offset, bytes);
      EXPECT_EQ(part.registered, offset < registered);
      if (part.registered) {
        EXPECT_EQ(offset / kPiece, (offset + part.bytes - 1) / kPiece);
        EXPECT_LE(offset + part.bytes, registered);
      }
      lengths.push_back(part.bytes);
      offset += part.bytes, bytes -= part.bytes;
    }
    return lengths;
  }

  MoestroCudaFunctions functions_;
  CudaSlots device_;
  std::vector<std::byte> memory_;
};

TEST_F(ArenaRegistrationTest, InPiecesOnceAndBackAgain) {
  {
    const ArenaRegistration arena(device_, memory_, true, kPiece);
    EXPECT_EQ(arena.registered_bytes(), memory_.size());
    EXPECT_EQ(driver.read_only, 0);
    EXPECT_EQ(driver.registered[memory_.data() + kPiece], kPiece);
    EXPECT_EQ(driver.registered[memory_.data() + 3 * kPiece], 100u);
    EXPECT_EQ(parts(arena, 0, kPiece, memory_.size()), (std::vector<uint64_t>{kPiece}));
    EXPECT_EQ(parts(arena, 100, kPiece, memory_.size()), (std::vector<uint64_t>{kPiece - 100, 100}));
    EXPECT_EQ(parts(arena, 1, 3 * kPiece + 99, memory_.size()),
              (std::vector<uint64_t>{kPiece - 1, kPiece, kPiece, 100}));
    const std::byte elsewhere{};
    EXPECT_FALSE(arena.part(&elsewhere, 1).registered);
    EXPECT_FALSE(arena.part(memory_.data() + memory_.size(), 1).registered);
    EXPECT_EQ(arena.describe(), "12.1 KiB of the store's memory registered with cuda:3");
  }
  EXPECT_EQ(driver.unregistered, 4);
}

TEST_F(ArenaRegistrationTest, AMappingThatCannotBeWrittenIsRegisteredAsSuch) {
  const ArenaRegistration arena(device_, memory_, false, kPiece);
  EXPECT_EQ(driver.read_only, 4);
  EXPECT_EQ(arena.describe(), "12.1 KiB of the store's memory registered with cuda:3, read-only");
}

TEST_F(ArenaRegistrationTest, WhereADriverRefusesThatTheWayOutIsSaid) {
  driver.refuses_read_only = true;
  const ArenaRegistration arena(device_, memory_, false, kPiece);
  EXPECT_EQ(driver.asked, 1) << "what one piece was refused the next ones are not asked for";
  EXPECT_THAT(arena.describe(), HasSubstr("copies from the rest are staged, which is slow: operation not supported; "
                                          "this worker cannot map it for writing: run it as the store's user"));
}

TEST_F(ArenaRegistrationTest, WhatIsRefusedIsStaged) {
  driver.pieces_max = 0;
  const ArenaRegistration arena(device_, memory_, true, kPiece);
  EXPECT_EQ(driver.asked, 1);
  EXPECT_EQ(parts(arena, 0, 2 * kPiece, 0), (std::vector<uint64_t>{2 * kPiece}));
  EXPECT_THAT(arena.describe(), AllOf(HasSubstr("0 B of the store's memory (12.1 KiB) registered with cuda:3"),
                                      HasSubstr("the rest are staged, which is slow: operation not supported")));
}

TEST_F(ArenaRegistrationTest, APartMayBeRefused) {
  driver.pieces_max = 2;
  const ArenaRegistration arena(device_, memory_, true, kPiece);
  EXPECT_EQ(arena.registered_bytes(), 2 * kPiece);
  EXPECT_EQ(parts(arena, kPiece - 10, 2 * kPiece, 2 * kPiece), (std::vector<uint64_t>{10, kPiece, kPiece - 10}));
  EXPECT_THAT(arena.describe(), HasSubstr("8.00 KiB of the store's memory (12.1 KiB) registered"));
}

TEST_F(ArenaRegistrationTest, MemoryInNoOnePlace) {
  const ArenaRegistration arena(device_, {}, false, kPiece);
  EXPECT_EQ(driver.asked, 0);
  EXPECT_FALSE(arena.part(memory_.data(), 10).registered);
  EXPECT_THAT(arena.describe(), HasSubstr("copies to cuda:3 are staged"));
}

}  // namespace
}  // namespace moestro::device

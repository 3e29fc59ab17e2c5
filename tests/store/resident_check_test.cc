// Which adopted blobs are compared with their checksums, and in which order.

#include <gtest/gtest.h>

#include "store/server/resident_check.h"

namespace moestro::store {
namespace {

/// A blob of two slices, its bytes and its content.
struct Sample {
  explicit Sample(std::byte value) : bytes(600, value) {
    std::vector<SliceHash> hashes;
    for (const uint32_t at : {0u, 300u}) {
      hashes.push_back(hash_of(bytes.data() + at, 300));
      Slice slice{};
      slice.length = 300, slice.xxh3_64 = checksum_of(bytes.data() + at, hashes.back());
      blob.slices.push_back(slice);
    }
    blob.length = 600;
    content = content_of(hashes);
  }
  void add_to(ResidentCheck& check, uint32_t entry, uint64_t number = 1) const {
    check.add(entry, number, blob, bytes.data(), content);
  }
  std::vector<std::byte> bytes;
  Blob blob;
  ContentHash content;
};

ResidentCheck::Outcome next(ResidentCheck& check) {
  while (!check.idle())
    if (const auto outcome = check.step()) return *outcome;
  return {};
}

TEST(ResidentCheck, WhatIsWantedIsCheckedFirstAndGoesOnWhereItWas) {
  const Sample a(std::byte{1}), b(std::byte{2});
  ResidentCheck check;
  a.add_to(check, 7), b.add_to(check, 8);
  EXPECT_FALSE(check.step()) << "the first slice of 8";
  a.add_to(check, 7);  // a worker waits for it
  EXPECT_EQ(next(check).entry, 7u);
  EXPECT_EQ(check.bytes_checked(), 900u);
  const auto last = next(check);
  EXPECT_EQ(last.entry, 8u);
  EXPECT_TRUE(last.right);
  EXPECT_EQ(check.bytes_checked(), 1200u) << "no slice twice";
}

TEST(ResidentCheck, AWrongByteAndAWrongContentAreFound) {
  Sample a(std::byte{1}), b(std::byte{2});
  a.bytes[599] = std::byte{9};
  b.content.low ^= 1;
  ResidentCheck check;
  a.add_to(check, 7);
  EXPECT_FALSE(next(check).right);
  b.add_to(check, 8);
  EXPECT_FALSE(next(check).right);
}

TEST(ResidentCheck, WhatIsForgottenIsNotLookedAtAgain) {
  ResidentCheck check;
  {
    const Sample gone(std::byte{1});
    gone.add_to(check, 7), gone.add_to(check, 9);
    EXPECT_FALSE(check.step());
    check.forget(7, 3);
  }
  EXPECT_TRUE(check.idle());
  const Sample b(std::byte{2});
  b.add_to(check, 9, 2);
  const auto outcome = next(check);
  EXPECT_EQ(outcome.check, 2u);
  EXPECT_TRUE(outcome.right);
}

}  // namespace
}  // namespace moestro::store

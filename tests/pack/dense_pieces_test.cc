// Dense tensors are the same bytes in pieces of any length, also where a border cuts a block or a row.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "common/dense_layout.h"
#include "store/pack/blob_builder.h"
#include "tests/support/places.h"

namespace moestro::store {
namespace {

std::vector<std::byte> built(const Checkpoint& checkpoint, const PackPlan& plan, uint32_t blob) {
  std::vector<std::byte> bytes;
  BlobBuilder builder(checkpoint, plan, uint64_t{1} << 20);
  const Status status = builder.build(blob, [&](std::span<const std::byte> piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
    return Status::ok();
  });
  EXPECT_TRUE(status.is_ok()) << status.message();
  return bytes;
}

void cut(Blob& blob, uint32_t piece) {
  blob.slices.clear();
  for (uint64_t at = 0; at < blob.length; at += piece)
    blob.slices.push_back({.length = static_cast<uint32_t>(std::min<uint64_t>(piece, blob.length - at))});
}

/// What stays as the checkpoint has it is compared with the checkpoint. Returns how many tensors that is.
int expect_as_they_are(const Checkpoint& checkpoint, const PackPlan& plan, uint32_t blob,
                       const std::vector<std::byte>& bytes) {
  int compared = 0;
  for (const uint32_t tensor : plan.origins[blob].tensors) {
    const model::DenseTensor& wanted = checkpoint.model().dense[tensor];
    const PackedTensor& packed = plan.manifest.tensors[tensor];
    const SourceTensor& source = checkpoint.tensor(wanted.source_name);
    if (source.dtype != packed.dtype || source.shape != packed.shape || wanted.head_rows > 0) continue;
    std::vector<std::byte> whole(source.bytes);
    EXPECT_TRUE(checkpoint.read(source, 0, whole).is_ok());
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(packed.offset);
    EXPECT_TRUE(std::equal(whole.begin(), whole.end(), first)) << packed.name;
    ++compared;
  }
  return compared;
}

class DensePieces : public ::testing::TestWithParam<const char*> {};

TEST_P(DensePieces, AreTheSameInAnyLength) {
  const auto checkpoint = Checkpoint::open(test::source_dir() / "tests/fixtures" / GetParam());
  ASSERT_TRUE(checkpoint) << checkpoint.status().message();
  for (const std::optional<DType> dense : {std::optional<DType>(), std::optional(DType::kBF16),
                                           std::optional(DType::kInt8)}) {
    PackPlan plan = plan_pack(*checkpoint, {.model_name = "m", .experts = {DType::kBF16}, .dense = dense});
    int as_they_are = 0;
    for (uint32_t b = 0; b < plan.manifest.blobs.size(); ++b) {
      Blob& blob = plan.manifest.blobs[b];
      if (blob.kind != BlobKind::kDense) continue;
      cut(blob, static_cast<uint32_t>(blob.length));
      const std::vector<std::byte> whole = built(*checkpoint, plan, b);
      ASSERT_EQ(whole.size(), blob.length);
      as_they_are += expect_as_they_are(*checkpoint, plan, b, whole);
      // Less than a block, no multiple of one, a multiple of all.
      for (const uint32_t piece : {50u, 1000u, 4099u, 128u * 17 * 13}) {
        cut(blob, piece);
        ASSERT_EQ(built(*checkpoint, plan, b), whole) << b << " in pieces of " << piece;
      }
    }
    EXPECT_GT(as_they_are, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Of, DensePieces,
                         ::testing::Values("quantised/qwen3_moe_awq", "quantised/qwen3_moe_gptq_groups_of_32",
                                           "quantised/qwen3_moe_fp8", "quantised/deepseek_v3_fp8",
                                           "quantised/qwen3_moe_nvfp4", "gguf/qwen3moe_k_quants"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace moestro::store

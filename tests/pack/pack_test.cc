// What pack_checkpoint leaves on disk.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "common/dense_layout.h"
#include "common/float16.h"
#include "common/model/model_spec.h"
#include "store/pack/journal.h"
#include "store/pack/manifest.h"
#include "store/pack/packer.h"
#include "store/pack/quantise.h"
#include "store/pack/slice_reader.h"
#include "store/pack/verify.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Key;
using ::testing::UnorderedElementsAre;
using testing::read_directory;
using testing::TemporaryDirectory;
using testing::write_checkpoint;

std::vector<std::byte> read_blob(const std::filesystem::path& dir, const Manifest& m, uint32_t blob) {
  const auto reader = SliceReader::open(dir, m);
  std::vector<std::byte> bytes(m.blobs[blob].length);
  EXPECT_TRUE(reader && reader->read_blob(blob, bytes).is_ok());
  return bytes;
}

TEST(Pack, HoldsEveryDenseTensor) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {.vocab = 9000});  // the embedding spans several slices
  const auto summary = pack_checkpoint(dir / "src", dir / "pack", {.dense = DType::kF32, .model_name = "tiny"}, {});
  ASSERT_TRUE(summary) << summary.status().message();
  const auto m = open_pack(dir / "pack");
  ASSERT_TRUE(m) << m.status().message();
  EXPECT_EQ(m->model_name, "tiny");
  EXPECT_EQ(m->tensors[0].name, "embed.weight");
  EXPECT_GT(m->blobs[0].slices.size(), 1u);
  const auto model = model::describe_model(m->config_json, "");
  for (size_t t = 0; t < m->tensors.size(); ++t) {
    const PackedTensor& tensor = m->tensors[t];
    const auto bytes = read_blob(dir / "pack", *m, tensor.blob);
    const auto* values = reinterpret_cast<const float*>(bytes.data() + tensor.offset);
    int64_t n = 1;
    for (const int64_t s : tensor.shape) n *= s;
    for (int64_t i = 0; i < n; ++i) {
      const float expected = bf16_to_f32(f32_to_bf16(testing::synthetic_value(model->dense[t].source_name, i)));
      ASSERT_EQ(values[i], expected) << tensor.name << " at " << i;
    }
  }
}

void expect_quantised_products(DType dtype, int64_t vocab) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {.vocab = vocab});  // the head spans slices, whose borders lie within rows
  const auto summary = pack_checkpoint(dir / "src", dir / "pack", {.dense = dtype}, {});
  ASSERT_TRUE(summary) << summary.status().message();
  const auto m = open_pack(dir / "pack");
  ASSERT_TRUE(m) << m.status().message();
  const auto model = model::describe_model(m->config_json, "");
  int quantised = 0;
  for (size_t t = 0; t < m->tensors.size(); ++t) {
    const PackedTensor& tensor = m->tensors[t];
    if (tensor.dtype != dtype) {
      const bool looked_up_or_small = tensor.name == "embed.weight" || tensor.shape.size() == 1 ||
                                      tensor.name.ends_with("router.weight") ||
                                      tensor.name.ends_with("shared_gate.weight");
      EXPECT_TRUE(looked_up_or_small) << tensor.name;
      continue;
    }
    ++quantised;
    const auto bytes = read_blob(dir / "pack", *m, tensor.blob);
    const int64_t rows = tensor.shape[0], cols = tensor.shape[1];
    const std::byte* values = bytes.data() + tensor.offset;
    const std::byte* parameters = values + dense_parameters_offset(dtype, rows, cols);
    std::vector<float> row(static_cast<size_t>(cols));
    std::vector<std::byte> want(static_cast<size_t>(row_bytes(dtype, cols)));
    std::vector<uint16_t> want_parameters(static_cast<size_t>(quant_groups(cols) * group_parameters(dtype)));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c)
        row[static_cast<size_t>(c)] =
            bf16_to_f32(f32_to_bf16(testing::synthetic_value(model->dense[t].source_name, r * cols + c)));
      ASSERT_TRUE(quantise_row(row.data(), cols, dtype, want.data(), want_parameters.data()));
      ASSERT_EQ(std::memcmp(values + r * row_bytes(dtype, cols), want.data(), want.size()), 0)
          << tensor.name << " row " << r;
      ASSERT_EQ(std::memcmp(parameters + r * parameter_bytes(dtype, cols), want_parameters.data(),
                            want_parameters.size() * 2),
                0)
          << tensor.name << " row " << r;
    }
  }
  EXPECT_GE(quantised, 5) << "q, k, v, o and the head";
}

TEST(Pack, QuantisesTheMatricesOfProductsAlone) {
  expect_quantised_products(DType::kInt8, 20000);
  expect_quantised_products(DType::kInt4, 30000);
}

TEST(Pack, GroupsDenseTensorsByLayer) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {});
  ASSERT_TRUE(pack_checkpoint(dir / "src", dir / "pack", {}, {}));
  const auto m = open_pack(dir / "pack");
  std::map<uint32_t, std::string> first;
  for (const PackedTensor& t : m->tensors) first.emplace(t.blob, t.name);
  EXPECT_THAT(first, UnorderedElementsAre(std::pair(0u, "embed.weight"), std::pair(1u, "layers.0.input_norm.weight"),
                                          std::pair(2u, "layers.1.input_norm.weight"), std::pair(3u, "head.weight")));
  EXPECT_EQ(m->expert_blob(MoeLayerId(1), ExpertId(2), DType::kBF16).value(), 4u + 5u);
  EXPECT_THAT(m->expert_blob(MoeLayerId(1), ExpertId(3), DType::kBF16).status().message(),
              HasSubstr("no expert 3 of MoE layer 1"));
  EXPECT_FALSE(m->expert_blob(MoeLayerId(2), ExpertId(0), DType::kBF16));
  EXPECT_FALSE(m->expert_blob(MoeLayerId(0), ExpertId(0), DType::kInt8));
}

TEST(Pack, LeavesThePlainFilesBeside) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {});
  ASSERT_TRUE(pack_checkpoint(dir / "src", dir / "pack", {.experts = {DType::kBF16, DType::kInt8}}, {}));
  EXPECT_THAT(
      read_directory(dir / "pack"),
      UnorderedElementsAre(Key("manifest"), Key("config.json"), Key("generation_config.json"), Key("tokenizer.json"),
                           Key("dense.bin"), Key("experts-bf16-000.bin"), Key("experts-int8-000.bin")));
}

TEST(Pack, IsTheSameHoweverItIsMade) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "one", {.hidden = 256, .ffn = 900, .experts = 4});
  write_checkpoint(dir / "many", {.shards = 5, .hidden = 256, .ffn = 900, .experts = 4});
  const PackOptions plain{
      .experts = {DType::kF32, DType::kInt8, DType::kBF16In12}, .dense = DType::kBF16In12, .model_name = "m"};
  ASSERT_TRUE(pack_checkpoint(dir / "one", dir / "a", plain, {}));
  PackOptions other = plain;
  other.jobs = 3, other.scratch_bytes_max = 3 * 256 * 2 * 64, other.commit_bytes = 1;  // one band per tile
  const auto summary = pack_checkpoint(dir / "many", dir / "b", other, {});
  ASSERT_TRUE(summary) << summary.status().message();
  EXPECT_EQ(read_directory(dir / "a"), read_directory(dir / "b"));
}

TEST(Pack, SplitsExpertFilesBetweenExperts) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {});
  PackOptions options;
  options.file_bytes_max = 100'000;  // an expert takes 45,056 bytes
  ASSERT_TRUE(pack_checkpoint(dir / "src", dir / "pack", options, {}));
  const auto m = open_pack(dir / "pack");
  EXPECT_THAT(m->files,
              ElementsAre("dense.bin", "experts-bf16-000.bin", "experts-bf16-001.bin", "experts-bf16-002.bin"));
  const auto report = verify_pack(dir / "pack", *m, 2, {});
  ASSERT_TRUE(report);
  EXPECT_EQ(report->blobs_bad, 0u);
}

TEST(Pack, TellsHowFarItIs) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {});
  uint64_t last = 0, total = 0;
  const PackObserver observer{[&](uint64_t done, uint64_t all) {
                                EXPECT_GE(done, last);
                                last = done;
                                total = all;
                              },
                              {}};
  const auto summary = pack_checkpoint(dir / "src", dir / "pack", {.jobs = 2}, observer);
  ASSERT_TRUE(summary);
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, summary->bytes);
}

TEST(Pack, RefusesADirectoryThatHoldsSomethingElse) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {});
  std::filesystem::create_directory(dir / "pack");
  testing::write_text(dir / "pack" / "letter.txt", "dear");
  EXPECT_THAT(pack_checkpoint(dir / "src", dir / "pack", {}, {}).status().message(), HasSubstr("is not empty"));
  EXPECT_EQ(read_directory(dir / "pack").size(), 1u);
  EXPECT_THAT(pack_checkpoint(dir / "src", dir / "src", {}, {}).status().message(), HasSubstr("is not empty"));
  ASSERT_TRUE(pack_checkpoint(dir / "src", dir / "other", {}, {}));
  EXPECT_THAT(pack_checkpoint(dir / "src", dir / "other", {}, {}).status().message(),
              HasSubstr("already holds a pack"));
}

TEST(Pack, RefusesValuesThatDoNotFit) {
  const TemporaryDirectory dir;
  const auto large = [](const std::string& name, int64_t i) {
    return name.ends_with("experts.1.up_proj.weight") && i == 7 ? 1e6f : 0.5f;
  };
  write_checkpoint(dir / "src", {.value = large});
  const auto packed = pack_checkpoint(dir / "src", dir / "pack", {.experts = {DType::kF16}, .jobs = 2}, {});
  EXPECT_THAT(packed.status().message(), HasSubstr("experts.1.up_proj.weight' holds values that f16 cannot"));
  EXPECT_FALSE(std::filesystem::exists(dir / "pack")) << "with other options nothing of it would be used";
}

TEST(Pack, RefusesValuesThatAreNone) {
  for (const float what : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()})
    for (const char* where : {"model.norm.weight", "model.layers.1.mlp.experts.2.down_proj.weight"})
      for (const DType source : {DType::kF32, DType::kBF16, DType::kF16}) {
        const TemporaryDirectory dir;
        const auto value = [&](const std::string& name, int64_t i) { return name == where && i == 71 ? what : 0.5f; };
        write_checkpoint(dir / "src", {.dtype = source, .value = value});
        for (const DType to : {DType::kF32, DType::kBF16, DType::kF16, DType::kInt8, DType::kInt4, DType::kBF16In12}) {
          const auto packed = pack_checkpoint(dir / "src", dir / "pack", {.experts = {to}, .dense = DType::kF32}, {});
          EXPECT_EQ(packed.status().code(), Code::kInvalidArgument);
          EXPECT_THAT(packed.status().message(),
                      HasSubstr("'" + std::string(where) + "' is infinite or not a number at value 71"));
          EXPECT_FALSE(std::filesystem::exists(dir / "pack" / "manifest"));
        }
      }
}

TEST(Pack, RefusesValuesThatWouldBecomeInfinite) {
  const TemporaryDirectory dir;
  const auto largest = [](const std::string& name, int64_t i) {
    return name == "model.norm.weight" && i == 7 ? std::numeric_limits<float>::max() : 0.5f;
  };
  write_checkpoint(dir / "src", {.dtype = DType::kF32, .value = largest});
  const auto packed = pack_checkpoint(dir / "src", dir / "pack", {.dense = DType::kBF16}, {});
  EXPECT_THAT(packed.status().message(), HasSubstr("'model.norm.weight' holds values that bf16 cannot"));
  EXPECT_TRUE(pack_checkpoint(dir / "src", dir / "wide", {}, {}));
}

TEST(Pack, SaysWhatWillBeWonderedAbout) {
  const auto notes = [](const testing::CheckpointOptions& checkpoint, const PackOptions& options) {
    const TemporaryDirectory dir;
    write_checkpoint(dir / "src", checkpoint);
    std::vector<std::string> lines;
    const auto packed = pack_checkpoint(dir / "src", dir / "pack", options,
                                        {{}, [&](const std::string& line) { lines.push_back(line); }});
    EXPECT_TRUE(packed) << packed.status().message();
    return lines;
  };
  EXPECT_THAT(notes({}, {}), ElementsAre());
  const testing::CheckpointOptions mixed{.dtype = DType::kF16,
                                         .other_dtypes = {{"model.layers.0.mlp.gate.weight", DType::kF32}}};
  EXPECT_THAT(notes(mixed, {}), ElementsAre(HasSubstr("dense weights are of several formats and become f32")));
  EXPECT_THAT(notes(mixed, {.dense = DType::kBF16}), ElementsAre()) << "asked for";
  testing::CheckpointOptions dynamic;
  dynamic.config = R"({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}})";
  EXPECT_THAT(notes(dynamic, {}),
              ElementsAre(HasSubstr("beyond 64 positions results are those of transformers fed token by token")));
}

// A router in f32 among weights in f16 keeps every bit.
TEST(Pack, MixedFormatsLoseNothing) {
  const TemporaryDirectory dir;
  const std::string router = "model.layers.0.mlp.gate.weight";
  const auto fine = [&](const std::string& name, int64_t i) {
    return name == router ? 1.0f + static_cast<float>(i + 1) / 8388608.0f : 0.5f;
  };
  write_checkpoint(dir / "src", {.dtype = DType::kF16, .other_dtypes = {{router, DType::kF32}}, .value = fine});
  ASSERT_TRUE(pack_checkpoint(dir / "src", dir / "pack", {}, {}));
  const auto m = open_pack(dir / "pack");
  EXPECT_THAT(m->expert_precisions, ElementsAre(DType::kF16));
  for (const PackedTensor& t : m->tensors) {
    EXPECT_EQ(t.dtype, DType::kF32) << t.name;
    if (t.name != "layers.0.router.weight") continue;
    const auto bytes = read_blob(dir / "pack", *m, t.blob);
    const auto* values = reinterpret_cast<const float*>(bytes.data() + t.offset);
    for (int64_t i = 0; i < 3 * 72; ++i) ASSERT_EQ(values[i], fine(router, i));
  }
}

TEST(Pack, RefusesOptionsThatMakeNoSense) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {});
  EXPECT_EQ(pack_checkpoint(dir / "src", dir / "pack", {.experts = {DType::kF32, DType::kF32}}, {}).status().code(),
            Code::kInvalidArgument);
  EXPECT_FALSE(std::filesystem::exists(dir / "pack"));
}

TEST(Pack, FusedProjectionsAreTakenApart) {
  const TemporaryDirectory dir;
  write_checkpoint(dir / "src", {.architecture = "Qwen3NextForCausalLM", .hidden = 64});
  ASSERT_TRUE(pack_checkpoint(dir / "src", dir / "pack", {}, {}));
  const auto m = open_pack(dir / "pack");
  ASSERT_TRUE(m) << m.status().message();
  const auto found = std::ranges::find(m->tensors, "layers.0.attn.k.weight", &PackedTensor::name);
  ASSERT_NE(found, m->tensors.end());
  EXPECT_EQ(found->shape, (std::vector<int64_t>{16, 64}));
}

TEST(Pack, EveryArchitecture) {
  for (const std::string& name : model::known_architectures()) {
    const TemporaryDirectory dir;
    write_checkpoint(dir / "src", {.architecture = name, .hidden = 64});
    const auto summary = pack_checkpoint(dir / "src", dir / "pack", {}, {});
    ASSERT_TRUE(summary) << summary.status().message();
    const auto m = open_pack(dir / "pack");
    EXPECT_TRUE(m) << m.status().message();
  }
}

}  // namespace
}  // namespace moestro::store

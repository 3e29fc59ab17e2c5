#include "store/pack/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "store/pack/gguf_model.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<std::vector<SourceTensor>> parse(const std::string& header, uint64_t data_bytes) {
  return parse_safetensors_header(header, 100, 100 + data_bytes, "x.safetensors");
}

TEST(Safetensors, ReadsItsTableOfContents) {
  const auto tensors =
      parse(R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
      "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "none": {"dtype": "F16", "shape": [0, 5], "data_offsets": [12, 12]}})",
            16);
  ASSERT_TRUE(tensors) << tensors.status().message();
  ASSERT_EQ(tensors->size(), 3u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ((*tensors)[0].dtype, DType::kBF16);
  EXPECT_THAT((*tensors)[0].shape, ElementsAre(2, 3));
  EXPECT_EQ((*tensors)[0].offset, 100u);
  EXPECT_EQ((*tensors)[1].offset, 112u);
  EXPECT_EQ((*tensors)[1].bytes, 4u);
}

// Checkpoints of one file have tens of thousands of tensors. The square of this number would be minutes.
TEST(Safetensors, TakesTimeInProportionToItsTensors) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i)
    header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + R"(":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})";
  const auto begin = std::chrono::steady_clock::now();
  const auto tensors = parse(header + "}", 0);
  ASSERT_TRUE(tensors) << tensors.status().message();
  EXPECT_EQ(tensors->size(), 100'000u);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

struct BadHeader {
  const char* header;
  uint64_t data_bytes;
  const char* says;
};

const BadHeader kBad[] = {
    {"", 0, "not valid JSON"},
    {"[]", 0, "not a JSON object"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})", 4, "not valid JSON"},
    {R"({"a": 3})", 0, "must have dtype"},
    {R"({"a": {"dtype": "F32", "shape": [1]}})", 4, "must have dtype"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "more": 1}})", 4, "must have dtype"},
    {R"({"a": {"dtype": 7, "shape": [1], "data_offsets": [0, 4]}})", 4, "dtype is not a string"},
    {R"({"a": {"dtype": "F31", "shape": [1], "data_offsets": [0, 4]}})", 4, "dtype 'F31' is unknown"},
    {R"({"a": {"dtype": "F32", "shape": 1, "data_offsets": [0, 4]}})", 4, "shape"},
    {R"({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}})", 4, "shape"},
    {R"({"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}})", 4, "shape"},
    {R"({"a": {"dtype": "F32", "shape": [18446744073709551615], "data_offsets": [0, 4]}})", 4, "shape"},
    {R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]}})", 4, "shape overflows"},
    {R"({"a": {"dtype": "F32", "shape": [1,1,1,1,1,1,1,1,1], "data_offsets": [0, 4]}})", 4, "shape"},
    {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", 4, "its shape needs 8 bytes"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", 4, "data_offsets"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", 4, "data_offsets"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}})", 4, "data_offsets"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 1e3]}})", 4, "data_offsets"},
    {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", 4, "truncated"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [18446744073709551612, 18446744073709551615]}})", 4,
     "truncated"},
    {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
     8, "overlaps"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})", 8, "belong to no tensor"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 8, "4 bytes at the end"},
    {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}, "a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
     8, "'a' is given twice"},
};

TEST(Safetensors, RefusesWhatLies) {
  for (const BadHeader& bad : kBad) {
    const auto tensors = parse(bad.header, bad.data_bytes);
    ASSERT_FALSE(tensors) << bad.header;
    EXPECT_THAT(tensors.status().message(), HasSubstr(bad.says)) << bad.header;
    EXPECT_THAT(tensors.status().message(), HasSubstr("x.safetensors")) << bad.header;
  }
}

TEST(Safetensors, RefusesFilesThatAreTooShortForTheirHeader) {
  const testing::TemporaryDirectory dir;
  const auto read = [&] {
    const auto file = File::open_for_reading(dir / "f");
    EXPECT_TRUE(file);
    return read_safetensors_header(*file).status();
  };
  const std::string contents[] = {"", "abc", std::string("\x10\0\0\0\0\0\0\0{}", 10),
                                  std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)};
  for (const std::string& text : contents) {
    testing::write_text(dir / "f", text);
    EXPECT_EQ(read().code(), Code::kInvalidArgument) << text.size();
  }
  testing::write_safetensors(dir / "f", "{}", "");
  EXPECT_TRUE(read().is_ok());
}

// After `git clone` without Git LFS.
TEST(Safetensors, SaysThatAFileIsAPointerOfGitLfs) {
  const testing::TemporaryDirectory dir;
  testing::write_text(dir / "f", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 16060617592\n");
  const auto file = File::open_for_reading(dir / "f");
  ASSERT_TRUE(file);
  EXPECT_THAT(read_safetensors_header(*file).status().message(), HasSubstr("git lfs pull"));
  EXPECT_THAT(read_text_file(dir / "f", 1000).status().message(), HasSubstr("git lfs pull"));
  EXPECT_THAT(GgufModel::open(dir / "f").status().message(), HasSubstr("git lfs pull"));
}

TEST(Safetensors, RefusesWhatIsNoFile) {
  const testing::TemporaryDirectory dir;
  EXPECT_EQ(File::open_for_reading(dir / "absent").status().code(), Code::kNotFound);
  EXPECT_THAT(File::open_for_reading(dir.path()).status().message(), HasSubstr("not a regular file"));
}

}  // namespace
}  // namespace moestro::store

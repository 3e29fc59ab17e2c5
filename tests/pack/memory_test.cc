// Memory stays bounded however large a tensor is: a sparse checkpoint whose matrices alone exceed the limit.

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "common/model/model_spec.h"
#include "store/pack/packer.h"
#include "tests/pack/synthetic_checkpoint.h"

namespace moestro::store {
namespace {

/// All zeros and no blocks on disk: header and size only.
void write_sparse_checkpoint(const std::filesystem::path& dir, const testing::CheckpointOptions& options) {
  std::filesystem::create_directories(dir);
  testing::write_text(dir / "config.json", testing::synthetic_config(options));
  const auto model = model::describe_model(testing::synthetic_config(options), "").value();
  std::string header = "{";
  uint64_t end = 0;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    uint64_t bytes = 4;
    std::string sizes;
    for (const int64_t n : shape)
      bytes *= static_cast<uint64_t>(n), sizes += (sizes.empty() ? "" : ",") + std::to_string(n);
    header += (header.size() > 1 ? ",\"" : "\"") + name + "\":{\"dtype\":\"F32\",\"shape\":[" + sizes +
              "],\"data_offsets\":[" + std::to_string(end) + "," + std::to_string(end + bytes) + "]}";
    end += bytes;
  };
  for (const auto& t : model.dense) add(t.source_name, t.shape);
  for (const auto& e : model.experts) {
    add(e.gate, {options.ffn, options.hidden});
    add(e.up, {options.ffn, options.hidden});
    add(e.down, {options.hidden, options.ffn});
  }
  header += "}";
  testing::write_safetensors(dir / "model.safetensors", header, "");
  std::filesystem::resize_file(dir / "model.safetensors", 8 + header.size() + end);
}

long resident_kib() {
  long pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * ::sysconf(_SC_PAGESIZE) / 1024;
}

class PackMemory : public ::testing::TestWithParam<PackOptions> {};

TEST_P(PackMemory, IsBounded) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory hides what is measured";
#endif
  const testing::TemporaryDirectory dir;
  // Each matrix 80 MiB, the embedding 80 MiB.
  write_sparse_checkpoint(
      dir / "src",
      {.architecture = "MixtralForCausalLM", .hidden = 1024, .ffn = 20480, .experts = 2, .layers = 1, .vocab = 20480});
  ::malloc_trim(0);  // a child's most begins with what its parent has, also of what earlier tests have freed
  const long before_kib = resident_kib();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    PackOptions options = GetParam();
    options.scratch_bytes_max = uint64_t{16} << 20;
    _exit(pack_checkpoint(dir / "src", dir / "pack", options, {}).is_ok() ? 0 : 1);
  }
  int status = 0;
  rusage usage{};
  ASSERT_EQ(wait4(child, &status, 0, &usage), child);
  ASSERT_TRUE(WIFEXITED(status));
  ASSERT_EQ(WEXITSTATUS(status), 0);
  // Scratch, two tiles and their sources, and the test program itself.
  EXPECT_LT(usage.ru_maxrss, 70 * 1024) << "KiB; the test program had " << before_kib;
}

INSTANTIATE_TEST_SUITE_P(Precisions, PackMemory,
                         ::testing::Values(PackOptions{.experts = {DType::kInt8}, .dense = DType::kBF16, .jobs = 2},
                                           PackOptions{
                                               .experts = {DType::kBF16In12}, .dense = DType::kBF16In12, .jobs = 2}));

}  // namespace
}  // namespace moestro::store

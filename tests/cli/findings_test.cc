#include "services/cli/doctor/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

namespace moestro::cli {
namespace {

using testing::HasSubstr;

/// A machine that lacks nothing.
MachineFacts good_machine() {
  MachineFacts facts;
  facts.kernel = "6.1.0";
  facts.cores = 8;
  facts.isa = facts.fastest_isa = kernels::Isa::kAvx512Vnni;
  facts.memory_bytes = 64ull << 30;
  facts.memory_available_bytes = 60ull << 30;
  facts.pack_dir = "packs";
  facts.pack_dir_exists = true;
  facts.shmem_huge = "never";
  facts.may_mount = facts.is_root = facts.may_lock = true;
  facts.open_files = 65536;
  facts.shm_is_tmpfs = true;
  facts.shm_bytes = facts.shm_free_bytes = 32ull << 30;
  return facts;
}

Finding about(const MachineFacts& facts, const std::string& topic) {
  for (const Finding& finding : judge(facts))
    if (finding.topic == topic) return finding;
  ADD_FAILURE() << "nothing about " << topic;
  return {};
}

TEST(Findings, AGoodMachineNeedsNoMending) {
  for (const Finding& finding : judge(good_machine())) {
    EXPECT_THAT(finding.verdict, testing::AnyOf(Verdict::kGood, Verdict::kInfo)) << finding.topic;
    EXPECT_EQ(finding.mend, "") << finding.topic;
  }
}

TEST(Findings, TheProcessorsInstructionsAreNamedByPrecision) {
  EXPECT_EQ(about(good_machine(), "processor").found,
            "8 cores, products with AVX-512 (f32, bf16, f16), AVX-512 VNNI (int8, int4)");
}

TEST(Findings, AProgramForAnotherProcessorIsNamed) {
  MachineFacts facts = good_machine();
  facts.isa = kernels::Isa::kScalar;
  const Finding finding = about(facts, "processor");
  EXPECT_EQ(finding.verdict, Verdict::kSlower);
  EXPECT_THAT(finding.found, HasSubstr("it has avx512-vnni, for which this program was compiled without kernels"));
  EXPECT_THAT(finding.mend, HasSubstr("MOESTRO_INSTRUCTION_SETS=all"));
}

TEST(Findings, WhatIsSlowerSaysWhatItCostsAndHowToMendIt) {
  MachineFacts facts = good_machine();
  facts.isa = facts.fastest_isa = kernels::Isa::kScalar;
  facts.may_mount = facts.may_lock = facts.is_root = false;
  facts.io_uring_error = ENOSYS;
  facts.direct_io_error = EINVAL;
  facts.shm_free_bytes = facts.shm_bytes = 64 << 20;
  facts.memlock_bytes = 8 << 20;
  facts.open_files = 256;
  int slower = 0;
  for (const Finding& finding : judge(facts)) {
    if (finding.verdict != Verdict::kSlower) continue;
    ++slower;
    EXPECT_NE(finding.mend, "") << finding.topic;
  }
  EXPECT_EQ(slower, 7);
}

TEST(Findings, IoUringByItsCause) {
  MachineFacts facts = good_machine();
  facts.io_uring_error = EPERM;
  facts.io_uring_disabled = 2;
  EXPECT_THAT(about(facts, "io_uring").mend, HasSubstr("sysctl"));
  facts.io_uring_disabled = 0;
  facts.seccomp_mode = 2;
  EXPECT_THAT(about(facts, "io_uring").mend, HasSubstr("seccomp profile"));
  facts.seccomp_mode = 0;
  facts.io_uring_error = ENOSYS;
  EXPECT_THAT(about(facts, "io_uring").found, HasSubstr("kernel 6.1.0"));
  facts.io_uring_error = ENOMEM;
  EXPECT_THAT(about(facts, "io_uring").mend, HasSubstr("ulimit -l"));
}

TEST(Findings, RegisteredBuffersAreTriedNotOnlyPromised) {
  MachineFacts facts = good_machine();
  facts.register_error = ENOMEM;  // as in a container, where the capability may be there and not in effect
  EXPECT_THAT(about(facts, "locked memory").found, HasSubstr("refuses to register read buffers"));
  EXPECT_THAT(about(facts, "locked memory").mend, HasSubstr("setcap cap_ipc_lock+p"));
  facts.register_error = 0;
  facts.may_lock = false;
  facts.memlock_bytes = 64 << 20;
  EXPECT_THAT(about(facts, "locked memory").found, HasSubstr("limit 64.0 MiB: a larger arena is not registered"));
  facts.memlock_bytes = UINT64_MAX;
  EXPECT_EQ(about(facts, "locked memory").verdict, Verdict::kGood);
}

TEST(Findings, WhereNothingCanBeTriedNothingIsSaid) {
  MachineFacts facts = good_machine();
  facts.pack_dir_exists = false;
  EXPECT_THAT(about(facts, "O_DIRECT").found, HasSubstr("is not a directory"));
  facts.pack_dir_closed = "packs: user 7 may not read all of it; let its owner run: chmod -R a+rX packs";
  EXPECT_THAT(about(facts, "O_DIRECT").found, HasSubstr("not tried: packs: user 7 may not read"));
  facts.pack_dir_exists = true, facts.pack_dir_closed.clear();
  facts.direct_io_error = EROFS;
  EXPECT_EQ(about(facts, "O_DIRECT").verdict, Verdict::kInfo);
  EXPECT_THAT(about(facts, "O_DIRECT").mend, HasSubstr("--pack"));
  facts.direct_io_error = EINVAL;
  EXPECT_EQ(about(facts, "O_DIRECT").verdict, Verdict::kSlower);
}

TEST(Findings, PlainUsersAreToldToUseSudo) {
  MachineFacts facts = good_machine();
  facts.io_uring_error = EPERM;
  facts.io_uring_disabled = 1;
  facts.is_root = false;
  EXPECT_THAT(about(facts, "io_uring").mend, testing::StartsWith("sudo"));
}

TEST(Findings, ACgroupsLimitIsNamed) {
  MachineFacts facts = good_machine();
  facts.cgroup_limit_bytes = 4ull << 30, facts.cgroup_left_bytes = 3ull << 30, facts.cgroup = "cgroup /box";
  EXPECT_THAT(about(facts, "memory").found, HasSubstr("cgroup /box allows 4.00 GiB, of which 3.00 GiB are left"));
}

TEST(Findings, HugePagesByWhoMayGiveThem) {
  MachineFacts facts = good_machine();
  EXPECT_THAT(about(facts, "huge pages").found, HasSubstr("`up` mounts"));
  facts.shmem_huge = "deny";
  EXPECT_THAT(about(facts, "huge pages").mend, HasSubstr("echo never >"));
  facts.may_mount = false, facts.shmem_huge = "always";
  EXPECT_EQ(about(facts, "huge pages").verdict, Verdict::kSlower)
      << "that is for memory without a name, not for /dev/shm";
  EXPECT_THAT(about(facts, "huge pages").mend, HasSubstr("huge=within_size"));
  facts.shm_huge = "within_size";
  EXPECT_EQ(about(facts, "huge pages").verdict, Verdict::kGood);
  facts.shm_huge = "never", facts.hugetlb_bytes = 4ull << 30, facts.hugetlb_free_bytes = 1ull << 30;
  EXPECT_THAT(about(facts, "huge pages").found, HasSubstr("1.00 GiB of 4.00 GiB"));
  EXPECT_THAT(about(facts, "huge pages").mend, HasSubstr("--payload-dir"));
  facts.hugetlb_free_bytes = 0, facts.shmem_huge = "";
  EXPECT_THAT(about(facts, "huge pages").mend, HasSubstr("nr_hugepages"));
}

TEST(Findings, WhyThereIsNoGpuAndWhatMendsIt) {
  MachineFacts facts = good_machine();
  facts.cuda_refusal = unsupported("the CUDA plugin is not built");
  EXPECT_EQ(about(facts, "GPU").found, "none, the CUDA plugin is not built; the CPU computes");
  EXPECT_EQ(about(facts, "GPU").verdict, Verdict::kInfo);
  EXPECT_EQ(about(facts, "GPU").mend, "") << "nothing is lacking on a machine without GPUs";
  facts.gpus = {"/dev/kfd"};
  EXPECT_EQ(about(facts, "GPU").mend, "") << "not NVIDIA's";
  facts.gpus = {"/dev/nvidia0"};
  EXPECT_EQ(about(facts, "GPU").verdict, Verdict::kSlower);
  EXPECT_EQ(about(facts, "GPU").found, "1 (/dev/nvidia0), the CUDA plugin is not built; the CPU computes");
  EXPECT_THAT(about(facts, "GPU").mend, HasSubstr("cmake --preset cuda"));
  facts.cuda_refusal = unavailable("no CUDA device: CUDA driver version is insufficient for CUDA runtime version");
  EXPECT_THAT(about(facts, "GPU").mend, testing::StartsWith("install NVIDIA's driver"));
  facts.cuda_driver = "470.57.02";
  EXPECT_THAT(about(facts, "GPU").mend, HasSubstr("driver here is 470.57.02"));
}

TEST(Findings, EachGpuHasALineOfItsOwn) {
  MachineFacts facts = good_machine();
  facts.numa_nodes = 2;
  facts.cuda = {{{"NVIDIA H200", 9, 0, 138ull << 30, 139ull << 30, "0000:17:00.0"}, 1},
                {{"Tesla T4", 7, 5, 14ull << 30, 15ull << 30, "0000:65:00.0"}, std::nullopt},
                {{"NVIDIA L4", 8, 9, 10 << 20, 24ull << 30, ""}, 0}};
  EXPECT_THAT(about(facts, "GPU 0").found,
              testing::StartsWith(
                  "NVIDIA H200, compute capability 9.0, 138 GiB of 139 GiB free, at 0000:17:00.0, NUMA node 1"));
  EXPECT_EQ(about(facts, "GPU 0").verdict, Verdict::kGood);
  EXPECT_EQ(about(facts, "GPU 0").mend, "");
  EXPECT_EQ(about(facts, "GPU 1").found,
            "Tesla T4, compute capability 7.5, 14.0 GiB of 15.0 GiB free, at 0000:65:00.0, NUMA node not known; too "
            "old, the kernels need 8.0");
  EXPECT_EQ(about(facts, "GPU 1").verdict, Verdict::kInfo);
  EXPECT_THAT(about(facts, "GPU 1").mend, HasSubstr("compute capability 8.0 or later"));
  EXPECT_EQ(about(facts, "GPU 2").verdict, Verdict::kSlower);
  EXPECT_THAT(about(facts, "GPU 2").found,
              HasSubstr("10.0 MiB of 24.0 GiB free, NUMA node 0; other processes have its memory"));
  EXPECT_THAT(about(facts, "GPU 2").mend, HasSubstr("nvidia-smi"));
  facts.cuda[1].device.failed = "uncorrectable ECC error encountered";
  EXPECT_EQ(about(facts, "GPU 1").verdict, Verdict::kSlower);
  EXPECT_EQ(about(facts, "GPU 1").found,
            "Tesla T4, at 0000:65:00.0: faulty: uncorrectable ECC error encountered; the others go on without it");
  EXPECT_THAT(about(facts, "GPU 1").mend, HasSubstr("nvidia-smi"));
  for (const Finding& finding : judge(facts))
    EXPECT_NE(finding.verdict, Verdict::kMissing) << finding.topic << ": doctor's exit code is that of the rest";
}

TEST(Findings, ThisMachineCanBeLookedAt) {
  const MachineFacts facts = look_at_machine(".");
  EXPECT_GT(facts.memory_bytes, 0u);
  EXPECT_GE(facts.cores, 1u);
  EXPECT_TRUE(facts.pack_dir_exists);
  EXPECT_NE(facts.cuda.empty(), facts.cuda_refusal.is_ok()) << "devices, or why there are none";
  EXPECT_FALSE(look_at_machine("/no/such/place").pack_dir_exists);
}

}  // namespace
}  // namespace moestro::cli

#include "store/arena/page_report.h"

#include "common/units.h"

namespace moestro::store {
namespace {

constexpr uint64_t kHugePage = 2ULL << 20;
constexpr const char* kShmemEnabled = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";


/// Pages set aside serve any store, whatever the kernel thinks of transparent ones.
std::string set_aside(uint64_t bytes) {
  return "sysctl vm.nr_hugepages=" + std::to_string((bytes + kHugePage - 1) / kHugePage) +
         ", mount a hugetlbfs, give it as --payload-dir";
}

std::string echo(const char* word) { return std::string("echo ") + word + " > " + kShmemEnabled; }

std::string mend_of(const PageFacts& facts) {
  const std::string anew = ", then start the store anew";
  const std::string defragment = "memory is in small pieces: echo 1 > /proc/sys/vm/compact_memory" + anew;
  if (facts.kind == PageFacts::Kind::kDisk) return "as --arena-dir a tmpfs mounted with huge=within_size";
  if (facts.shmem_huge.empty()) return set_aside(facts.bytes);
  // `deny` overrules mounts, and whoever set it had a reason for all shared memory; `never` leaves it to each mount.
  if (facts.shmem_huge == "deny") return echo(facts.kind == PageFacts::Kind::kNameless ? "advise" : "never") + anew;
  if (facts.kind == PageFacts::Kind::kNameless) return facts.shmem_huge == "never" ? echo("advise") + anew : defragment;
  if (facts.shmem_huge == "force" || (!facts.mount_huge.empty() && facts.mount_huge != "never")) return defragment;
  return "mount -o remount,huge=within_size " + facts.mount + " (a container's volume: that option among its own)" +
         anew;
}

}  // namespace

PageReport judge_pages(const PageFacts& facts) {
  PageReport report;
  report.huge_bytes = facts.huge_bytes;
  // What is left over beyond the last whole huge page lies on small ones.
  const uint64_t whole = facts.bytes / kHugePage * kHugePage;
  report.huge = whole > 0 && facts.huge_bytes >= whole / 10 * 9;
  report.found =
      mib(facts.bytes) + (report.huge ? " on huge pages" : ", " + mib(facts.huge_bytes) + " of it on huge pages");
  if (facts.kind == PageFacts::Kind::kHugetlbfs) report.found += " that were set aside in " + facts.dir;
  if (facts.kind == PageFacts::Kind::kNameless)
    report.found += ", memory without a name: a restarted store cannot take it over";
  if (!facts.nodes.empty()) report.found += ", NUMA " + facts.nodes;
  if (!report.huge && whole > 0) {
    report.found += "; reads into small pages run at about half the speed";
    report.mend = mend_of(facts);
  }
  if (!facts.spread.is_ok()) {
    report.found += "; " + facts.spread.message();
    report.mend +=
        (report.mend.empty() ? "" : "; ") +
        std::string("allow set_mempolicy (docker run --cap-add SYS_NICE), or numactl --interleave=all moestro-store");
  }
  return report;
}

}  // namespace moestro::store

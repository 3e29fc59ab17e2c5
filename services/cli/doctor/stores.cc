#include "services/cli/doctor/stores.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "services/box/places.h"
#include "store/client/status_client.h"

namespace moestro::cli {
namespace {

namespace fs = std::filesystem;
constexpr const char* kTopic = "arena";
constexpr std::chrono::milliseconds kWithin{2000};

bool has_own_socket(const fs::path& run_dir) {
  struct stat info {};
  return ::lstat((run_dir / "store.sock").c_str(), &info) == 0 && S_ISSOCK(info.st_mode) && info.st_uid == ::geteuid();
}

}  // namespace

std::vector<fs::path> find_stores(const std::vector<fs::path>& roots) {
  std::vector<fs::path> found;
  for (const fs::path& root : roots)
    for (const fs::path& home : {root / ("moestro-" + std::to_string(::geteuid())), root / "moestro"}) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(home, error))
        if (has_own_socket(entry.path())) found.push_back(entry.path());
    }
  return found;
}

std::optional<Finding> ask_store(const fs::path& run_dir) {
  const auto status = store::query_store(box::store_endpoint(run_dir), kWithin);
  if (!status) return std::nullopt;
  return Finding{kTopic, status->pages_mend.empty() ? Verdict::kGood : Verdict::kSlower,
                 "of the store in " + run_dir.string() + ": " + status->pages, status->pages_mend};
}

std::vector<Finding> judge_stores(const std::vector<fs::path>& roots, const std::vector<fs::path>& asked) {
  std::vector<Finding> findings;
  for (const fs::path& dir : asked) {
    const auto answer = ask_store(dir);
    findings.push_back(answer ? *answer
                              : Finding{kTopic, Verdict::kMissing, "no store answers in " + dir.string(),
                                        "moestro up, or see its log"});
  }
  for (const fs::path& dir : find_stores(roots)) {
    if (std::ranges::find(asked, dir) != asked.end()) continue;
    if (const auto answer = ask_store(dir)) findings.push_back(*answer);
  }
  return findings;
}

}  // namespace moestro::cli

#include "services/cli/doctor/stores.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "common/config/units.h"
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

/// Of models whose dense weights do not all stay in memory.
void judge_dense(const fs::path& run_dir, const store::StoreStatusReport& status, std::vector<Finding>& findings) {
  uint64_t drives = 0;
  for (const auto& drive : status.reading.drives) drives += drive.bytes_per_s;
  for (const auto& model : status.models) {
    if (model.streamed_layers == 0) continue;
    std::string found = "dense weights of model " + model.name + " of the store in " + run_dir.string() + ": " +
                        std::to_string(model.layers - model.streamed_layers) + " of " + std::to_string(model.layers) +
                        " layers stay in memory, each step reads " + config::readable_size(model.streamed_bytes);
    if (drives > 0)
      found += fmt::format(", at most {:.2f} steps a second",
                           static_cast<double>(drives) / static_cast<double>(model.streamed_bytes));
    findings.push_back({kTopic, Verdict::kSlower, found, "a larger --dram"});
  }
}

/// False: none answers.
bool ask_store(const fs::path& run_dir, std::vector<Finding>& findings) {
  const auto status = store::query_store(box::store_endpoint(run_dir), kWithin);
  if (!status) return false;
  findings.push_back({kTopic, status->pages_mend.empty() ? Verdict::kGood : Verdict::kSlower,
                      "of the store in " + run_dir.string() + ": " + status->pages, status->pages_mend});
  judge_dense(run_dir, *status, findings);
  return true;
}

}  // namespace

std::vector<fs::path> find_stores(const std::vector<fs::path>& roots, const std::vector<fs::path>& known) {
  std::vector<fs::path> found;
  const auto is_new = [&](const fs::path& dir) {
    std::error_code error;
    return std::ranges::none_of(known, [&](const fs::path& one) { return fs::equivalent(one, dir, error); });
  };
  for (const fs::path& root : roots)
    for (const fs::path& home : {root / ("moestro-" + std::to_string(::geteuid())), root / "moestro"}) {
      std::error_code error;
      for (const auto& entry : fs::directory_iterator(home, error))
        if (has_own_socket(entry.path()) && is_new(entry.path())) found.push_back(entry.path());
    }
  return found;
}

std::vector<Finding> judge_stores(const std::vector<fs::path>& roots, const std::vector<fs::path>& asked) {
  std::vector<Finding> findings;
  for (const fs::path& dir : asked) {
    if (!ask_store(dir, findings))
      findings.push_back(
          {kTopic, Verdict::kMissing, "no store answers in " + dir.string(), "moestro up, or see its log"});
  }
  for (const fs::path& dir : find_stores(roots, asked)) (void)ask_store(dir, findings);
  return findings;
}

}  // namespace moestro::cli

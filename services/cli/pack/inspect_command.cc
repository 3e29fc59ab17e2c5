#include "services/cli/pack/inspect_command.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "services/cli/common/json_text.h"
#include "services/cli/pack/pack_report.h"
#include "services/cli/pack/progress.h"
#include "services/command_line/command_line.h"
#include "store/pack/verify.h"

namespace moestro::cli {
namespace {

struct InspectArguments {
  std::string pack;
  bool verify = false, json = false;
};

Status verify(const InspectArguments& arguments, const store::Manifest& manifest) {
  ByteProgress progress("checking");
  const unsigned jobs = std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
  const auto report = store::verify_pack(arguments.pack, manifest, jobs,
                                         [&](uint64_t done, uint64_t total) { progress.update(done, total); });
  progress.finish();
  if (!report) return report.status();
  const uint32_t bad = report->blobs_bad + report->copied_bad;
  if (bad <= 1) return report->first_error;
  return report->first_error.with_context(std::to_string(report->blobs_bad) + " blobs and " +
                                          std::to_string(report->copied_bad) + " other files are damaged, the first");
}

Status run_inspect(const InspectArguments& arguments) {
  MOESTRO_ASSIGN_OR_RETURN(const store::Manifest manifest, store::open_pack(arguments.pack));
  MOESTRO_ASSIGN_OR_RETURN(nlohmann::json report, pack_report(arguments.pack, manifest));
  if (arguments.verify) {
    MOESTRO_RETURN_IF_ERROR(verify(arguments, manifest));
    report["verified"] = true;
  }
  if (arguments.json) {
    std::printf("%s\n", json_text(report, 2).c_str());
  } else {
    std::fputs(pack_report_text(report).c_str(), stdout);
    if (arguments.verify) std::puts("every checksum is right, every number finite");
  }
  return Status::ok();
}

}  // namespace

void add_inspect_command(command_line::App& app, CommandResult& result) {
  auto* command = app.add_subcommand("inspect", "Show what is in a pack, and check it");
  auto arguments = std::make_shared<InspectArguments>();
  command->add_option("pack", arguments->pack, "Directory of the pack")->required()->option_text("PACK");
  command->add_flag("--verify", arguments->verify,
                    "Read everything. Check every checksum, and that every number is finite");
  command->add_flag("--json", arguments->json, "Print the result as JSON");
  command->callback([arguments, &result] {
    if (const Status status = run_inspect(*arguments); !status.is_ok()) fail(result, status);
  });
}

}  // namespace moestro::cli

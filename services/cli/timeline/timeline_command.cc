#include "services/cli/timeline/timeline_command.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/timeline/timeline_report.h"

namespace moestro::cli {
namespace {

struct TimelineOptions {
  std::vector<std::string> files;
  bool json = false;
};

}  // namespace

void add_timeline_command(command_line::App& app, CommandResult& result) {
  command_line::App* timeline =
      app.add_subcommand("timeline", "Print how busy each lane of a timeline was, and what its steps waited for");
  auto o = std::make_shared<TimelineOptions>();
  timeline
      ->add_option("FILE", o->files,
                   "Timelines, which `moestro up --timeline timeline.json` records; plain or .zst. Several files are "
                   "the workers of one machine")
      ->required();
  timeline->add_flag("--json", o->json, "Print the result as JSON. Times are in microseconds");
  timeline->footer(
      "Example:\n"
      "  moestro up --model PACK --timeline timeline.json      # then send requests\n"
      "  moestro timeline timeline.json                        # also while it is being written");
  timeline->callback([o, &result] {
    TimelineSummary summary;
    for (const std::string& file : o->files)
      if (const Status added = summary.add_file(file); !added.is_ok()) return fail(result, added);
    const std::string text = o->json ? json_text(timeline_json(summary), 2) + "\n" : timeline_text(summary);
    std::fputs(text.c_str(), stdout);
  });
}

}  // namespace moestro::cli

#include "services/cli/bench/serve/table.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "store/pack/manifest.h"

namespace moestro::cli {
namespace {

struct Group {
  const char* name;
  Status (*add)(const RowContext&, std::vector<BenchRow>&);
};
constexpr Group kGroups[] = {{"mixed", add_mixed_rows},
                             {"overload", add_overload_rows},
                             {"beside", add_beside_rows},
                             {"streams", add_stream_rows}};

}  // namespace

double median(const std::vector<double>& values) { return distribution(values).p50; }

Result<LoadRun> row_load(const RowContext& context, const LoadOptions& load, const std::vector<Arrival>& arrivals,
                         const std::string& what) {
  MOESTRO_ASSIGN_OR_RETURN(LoadRun run, run_load(load, arrivals, [&](const LoadProgress& p) {
                             context.say(what + ": " + progress_text(p));
                           }));
  if (run.interrupted) return cancelled("interrupted during " + what);
  return run;
}

Status all_answered(const LoadRun& run, const std::string& what) {
  for (const auto& [kind, failure] : run.failures)
    return unavailable(what + ": " + std::to_string(failure.count) + " requests: " + kind + ": " + failure.example);
  return Status::ok();
}

Result<ServeTable> serve_table(const ServeBenchOptions& options, const TableOptions& o, const BenchProgress& progress) {
  MOESTRO_ASSIGN_OR_RETURN(const store::Manifest manifest, store::open_pack(options.model));
  ServeTable table{.model = manifest.model_name, .rows = {}};
  uint64_t done = 0;
  const auto wanted = [&](const Group& g) {
    return o.only.empty() || std::find(o.only.begin(), o.only.end(), g.name) != o.only.end();
  };
  const auto total = static_cast<uint64_t>(std::count_if(std::begin(kGroups), std::end(kGroups), wanted));
  for (const Group& group : kGroups) {
    if (!wanted(group)) continue;
    const RowContext context{options, o.rounds, [&](const std::string& what) { progress(done, total, what); }};
    context.say(std::string(group.name) + ": starting a box");
    MOESTRO_RETURN_IF_ERROR(group.add(context, table.rows).with_context(group.name));
    ++done;
  }
  return table;
}

nlohmann::ordered_json table_json(const ServeTable& table) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const BenchRow& r : table.rows) {
    rows.push_back(row_json(r));
    rows.back()["model"] = table.model;
  }
  return rows;
}

std::string table_text(const ServeTable& table) {
  std::string text = table.model + "\n" + rows_head();
  for (const BenchRow& r : table.rows) text += row_text(r);
  return text;
}

}  // namespace moestro::cli

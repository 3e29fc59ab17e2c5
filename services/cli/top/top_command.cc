#include "services/cli/top/top_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/config/units.h"
#include "services/box/box_flags.h"
#include "services/box/places.h"
#include "services/cli/common/http_client.h"
#include "services/cli/common/json_text.h"
#include "services/cli/common/output.h"
#include "services/cli/common/server_options.h"
#include "services/cli/instance/instances.h"
#include "services/cli/instance/own_server.h"
#include "services/cli/store/status_json.h"
#include "services/cli/top/server_look.h"
#include "services/cli/top/terminal.h"
#include "services/cli/top/text_width.h"
#include "services/cli/top/view.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kWithin{3000}, kServerWithin{2000};
constexpr milliseconds kIntervalMin{100};
constexpr std::chrono::seconds kMapEvery{5};  ///< the map of experts is large

struct Options {
  explicit Options(command_line::App& app)
      : flags(app, {{"run.dir", kRunDirOfCluster},
                    {"model.name", kNameOfCluster},
                    {"orchestrator.http", "The orchestrator's address. A port in the run directory takes precedence. "
                                          "Default: the address in the run directory"}}) {}
  box::BoxFlags flags;
  std::string interval = "1s", url;
  ServerOptions server;
  bool json = false, once = false, no_color = false;
};

/// The store and the orchestrator of one box, at one time. The latter may be away, or on another machine.
struct Look {
  StoreLook store;
  ServerLook server;
};
struct Places {
  std::string store;  ///< endpoint
  Server server;
};

/// What of the server's status is large, and not for every look.
enum class Experts : bool { kNo, kYes };

ServerLook ask_server(const Server& server, Experts experts) {
  ServerLook look;
  HttpClient client(server.url, {.connect = kServerWithin, .silence = kServerWithin}, server.access);
  const auto reply = client.get(experts == Experts::kYes ? "/v1/moestro/status?experts=1" : "/v1/moestro/status");
  if (!reply.is_ok()) look.trouble = reply.status().message();
  else if (reply->status != 200)
    look.trouble = answered_with(reply->status, reply->body).with_context(server.url.authority()).message();
  else return read_server_status(reply->body);
  return look;
}

Result<StoreLook> ask_store(const std::string& endpoint) {
  MOESTRO_ASSIGN_OR_RETURN(auto status, store::query_store(endpoint, kWithin));
  return StoreLook{std::move(status), std::chrono::duration<double>(steady_clock::now().time_since_epoch()).count()};
}

Result<Look> look(const Places& places, Experts experts) {
  MOESTRO_ASSIGN_OR_RETURN(auto store, ask_store(places.store));
  return Look{std::move(store), ask_server(places.server, experts)};
}

/// Of --url; else of the box, as it runs, with what the flags say over that.
Result<Server> server_asked(const Options& o, const std::filesystem::path& run_dir) {
  ServerOptions asked = o.server;
  asked.url = o.url;
  if (!o.url.empty()) return server_of(asked);
  config::BoxConfig in_effect;
  MOESTRO_RETURN_IF_ERROR(read_box_in_effect(run_dir, in_effect));
  MOESTRO_RETURN_IF_ERROR(o.flags.read(in_effect));
  return own_server(in_effect, run_dir, asked);
}

std::vector<Line> page_of(const Look& before, const Look& now, const TerminalSize& size) {
  return top_page(server_lines(before.server, now.server), now.server.experts, now.store,
                  rates_between(before.store, now.store), size);
}

json to_json(const Look& now, const StoreRates& r) {
  json report = status_json(now.store.status);
  report["server"] = now.server.trouble.empty() ? json::parse(now.server.json, nullptr, false) : json();
  report["rates"] = {{"seconds", r.seconds},       {"hits", r.hits},
                     {"misses", r.misses},         {"read_bytes", r.read_bytes},
                     {"loads", r.loads},           {"evictions", r.evictions},
                     {"prefetches", r.prefetches}, {"scrubbed_bytes", r.scrubbed_bytes},
                     {"streamed_bytes", r.streamed_bytes}};
  for (size_t i = 0; i < r.workers.size(); ++i)
    report["workers"][i]["rates"] = {{"hits", r.workers[i].hits}, {"misses", r.workers[i].misses}};
  for (size_t i = 0; i < r.drive_bytes.size(); ++i) report["drives"][i]["rates"] = {{"read_bytes", r.drive_bytes[i]}};
  return report;
}

/// Without a store there is no page. But the server knows what is wrong, if it answers.
Status without_store(const Server& server, const Status& store, bool colour) {
  const ServerLook now = ask_server(server, Experts::kNo);
  if (!now.trouble.empty()) return store;
  for (const Line& line : fitted(server_lines(now, now), terminal_size().columns))
    std::printf("%s\n", line.drawn(colour).c_str());
  return store;
}

/// Two looks, and what lies between them.
Status show_once(const Places& places, milliseconds interval, bool as_json, bool colour, const Signals& signals) {
  const auto before = look(places, Experts::kNo);
  if (!before) return as_json ? before.status() : without_store(places.server, before.status(), colour);
  if (signals.wait(steady_clock::now() + interval) == Signals::Heard::kEnd) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const Look now, look(places, as_json ? Experts::kNo : Experts::kYes));
  if (as_json) {
    std::printf("%s\n", json_text(to_json(now, rates_between(before->store, now.store)), 2).c_str());
    return Status::ok();
  }
  const TerminalSize size{.columns = terminal_size().columns};
  for (const Line& line : page_of(*before, now, size)) std::printf("%s\n", line.drawn(colour).c_str());
  return Status::ok();
}

/// What is on the screen, from look to look.
class Watched {
 public:
  explicit Watched(Look first) : before_(first), now_(std::move(first)), map_asked_(steady_clock::now()) {}

  /// A store that is away is waited for: it may be on its way back. What the server says goes on.
  void look_again(const Places& places) {
    auto store = ask_store(places.store);
    trouble_ = store.status().message();
    if (store) before_.store = std::exchange(now_.store, std::move(*store));
    const bool map_is_old = steady_clock::now() - map_asked_ >= kMapEvery;
    ServerLook server = ask_server(places.server, map_is_old ? Experts::kYes : Experts::kNo);
    if (map_is_old) map_asked_ = steady_clock::now();
    else if (server.trouble.empty()) server.experts = now_.server.experts;
    before_.server = std::exchange(now_.server, std::move(server));
  }

  void draw(bool colour) const {
    const TerminalSize whole = terminal_size();
    TerminalSize left = whole;
    std::vector<Line> lines;
    if (!trouble_.empty()) {
      const std::string said = visible("no answer since the store's figures below: " + trouble_);
      lines = fitted({figures("      !", Tone::kBad).add(said)}, whole.columns);
      if (whole.rows > 0) {  // of which the page keeps one at least: 0 would mean that there is no bound
        lines.resize(std::min(lines.size(), whole.rows - 1));
        left.rows -= lines.size();
      }
    }
    std::ranges::move(page_of(before_, now_, left), std::back_inserter(lines));
    Screen::draw(lines, whole, colour);
  }

 private:
  Look before_, now_;
  steady_clock::time_point map_asked_;
  std::string trouble_;  ///< why the store did not answer last; empty: it did
};

/// Until a signal.
Status watch(const Places& places, milliseconds interval, bool colour, const Signals& signals) {
  auto first = look(places, Experts::kYes);
  if (!first) return without_store(places.server, first.status(), colour);
  Watched watched(std::move(*first));
  Screen screen;
  while (true) {
    watched.draw(colour);
    for (const auto until = steady_clock::now() + interval; steady_clock::now() < until;) {
      const Signals::Heard heard = signals.wait(until);
      if (heard == Signals::Heard::kEnd) return Status::ok();
      if (heard == Signals::Heard::kSuspended) screen.suspend();
      if (heard != Signals::Heard::kNothing) watched.draw(colour);
    }
    watched.look_again(places);
  }
}

Status show(const Options& o) {
  config::BoxConfig box;
  MOESTRO_RETURN_IF_ERROR(o.flags.read(box));
  const auto given = config::parse_duration(o.interval);
  MOESTRO_RETURN_IF_ERROR(given.status().with_context("--interval"));
  const milliseconds interval = *given;
  if (interval < kIntervalMin)
    return invalid_argument("--interval " + o.interval + ": at least " + config::format_duration(kIntervalMin));
  std::filesystem::path run_dir = box.run.dir;
  if (box.run.dir.empty() && box.model.name.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(const Instance instance, only_instance(find_instances()));
    run_dir = instance.run_dir;
  } else if (box.run.dir.empty()) {
    MOESTRO_ASSIGN_OR_RETURN(run_dir, run_dir_of(box.model.name));
  }
  MOESTRO_ASSIGN_OR_RETURN(const Server server, server_asked(o, run_dir));
  const Places places{box::store_endpoint(run_dir), server};
  const bool once = o.once || o.json || ::isatty(STDOUT_FILENO) == 0, colour = colour_wanted(o.no_color);
  const Signals signals(/*for_screen=*/!once);
  return once ? show_once(places, interval, o.json, colour, signals) : watch(places, interval, colour, signals);
}

}  // namespace

void add_top_command(command_line::App& app, CommandResult& result) {
  command_line::App* command =
      app.add_subcommand("top",
                         "Show a running cluster: requests, queue, batches, and what its store holds, "
                         "reads and hits. Redrawn every second; Ctrl-C ends it");
  auto options = std::make_shared<Options>(*command);
  command->add_option("--interval", options->interval, "Time between two updates")
      ->capture_default_str()
      ->type_name("TIME");
  command
      ->add_option("--url", options->url,
                   "The orchestrator. Default: that of the run directory, over https with its own certificate if it "
                   "serves https")
      ->type_name("URL");
  add_access_options(*command, options->server);
  command->add_flag("--once", options->once, "Print one page. So does an output that is no terminal");
  command->add_flag("--no-color", options->no_color,
                    "Use no colours. So does NO_COLOR in the environment, or an output that is no terminal");
  command->add_flag("--json", options->json, "Print the figures once as JSON, with the rates of one interval");
  command->callback([options, &result] {
    const Status status = show(*options);
    if (!status.is_ok()) fail(result, status, status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailed);
  });
}

}  // namespace moestro::cli

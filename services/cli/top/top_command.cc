#include "services/cli/top/top_command.h"

#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/config/units.h"
#include "services/box/box_flags.h"
#include "services/box/places.h"
#include "services/cli/http_client.h"
#include "services/cli/json_text.h"
#include "services/cli/output.h"
#include "services/cli/server_options.h"
#include "services/cli/store/status_json.h"
#include "services/cli/top/own_server.h"
#include "services/cli/top/server_look.h"
#include "services/cli/top/view.h"
#include "services/cli/up/run_dir.h"
#include "services/command_line/command_line.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kWithin{3000}, kServerWithin{2000};
constexpr milliseconds kIntervalMin{100};
constexpr size_t kColumns = 80;  ///< where there is no terminal

struct Options {
  explicit Options(command_line::App& app) : flags(app, {"run.dir", "model.name", "orchestrator.http"}) {}
  box::BoxFlags flags;
  std::string interval = "1s", url;
  ServerOptions server;
  bool json = false, once = false;
};

/// SIGINT and SIGTERM, taken where this waits, so that the terminal is given back as it was.
class Stop {
 public:
  Stop() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~Stop() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;
  /// True if one came within that time.
  bool within(milliseconds time) const {
    const timespec limit{time.count() / 1000, time.count() % 1000 * 1000000};
    return sigtimedwait(&signals_, nullptr, &limit) > 0;
  }

 private:
  sigset_t signals_{}, before_{};
};

/// The page in place of what was on the screen, which comes back at the end.
class Screen {
 public:
  Screen() { std::fputs("\x1b[?1049h\x1b[?25l", stdout); }
  ~Screen() { std::fputs("\x1b[?25h\x1b[?1049l", stdout), std::fflush(stdout); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  static void draw(const std::vector<std::string>& lines) {
    winsize size{};
    const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1;
    const size_t rows = known ? size.ws_row - 1u : lines.size();
    std::string page = "\x1b[H";
    for (size_t i = 0; i < std::min(rows, lines.size()); ++i) page += lines[i] + "\x1b[K\n";
    std::fputs((page + "\x1b[J").c_str(), stdout);
    std::fflush(stdout);
  }
  static size_t columns() {
    winsize size{};
    return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kColumns;
  }
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

ServerLook ask_server(const Server& server) {
  ServerLook look;
  HttpClient client(server.url, {.connect = kServerWithin, .silence = kServerWithin}, server.access);
  const auto reply = client.get("/v1/moestro/status");
  if (!reply.is_ok()) look.trouble = reply.status().message();
  else if (reply->status != 200)
    look.trouble = answered_with(reply->status, reply->body).with_context(server.url.authority()).message();
  else return read_server_status(reply->body);
  return look;
}

Result<Look> look(const Places& places) {
  MOESTRO_ASSIGN_OR_RETURN(auto status, store::query_store(places.store, kWithin));
  StoreLook store{std::move(status),
                  std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()};
  return Look{std::move(store), ask_server(places.server)};
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

std::vector<std::string> page_of(const Look& before, const Look& now, size_t columns) {
  std::vector<std::string> page = server_lines(before.server, now.server);
  for (std::string& line : page) line.resize(std::min(line.size(), columns));
  for (std::string& line : top_page(now.store, rates_between(before.store, now.store), columns))
    page.push_back(std::move(line));
  return page;
}

json to_json(const Look& now, const StoreRates& r) {
  json report = status_json(now.store.status);
  report["server"] = now.server.trouble.empty() ? json::parse(now.server.json, nullptr, false) : json();
  report["rates"] = {{"seconds", r.seconds},       {"hits", r.hits},
                     {"misses", r.misses},         {"read_bytes", r.read_bytes},
                     {"loads", r.loads},           {"evictions", r.evictions},
                     {"prefetches", r.prefetches}, {"scrubbed_bytes", r.scrubbed_bytes}};
  for (size_t i = 0; i < r.workers.size(); ++i)
    report["workers"][i]["rates"] = {{"hits", r.workers[i].hits}, {"misses", r.workers[i].misses}};
  for (size_t i = 0; i < r.drive_bytes.size(); ++i) report["drives"][i]["rates"] = {{"read_bytes", r.drive_bytes[i]}};
  return report;
}

/// Two looks, and what lies between them.
Status show_once(const Places& places, milliseconds interval, bool as_json, const Stop& stop) {
  MOESTRO_ASSIGN_OR_RETURN(const Look before, look(places));
  if (stop.within(interval)) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const Look now, look(places));
  if (as_json) {
    std::printf("%s\n", to_json(now, rates_between(before.store, now.store))
                            .dump(2, ' ', false, json::error_handler_t::replace)
                            .c_str());
    return Status::ok();
  }
  for (const std::string& line : page_of(before, now, kColumns)) std::printf("%s\n", line.c_str());
  return Status::ok();
}

/// Until a signal. A store that is away is waited for: it may be on its way back.
Status watch(const Places& places, milliseconds interval, const Stop& stop) {
  MOESTRO_ASSIGN_OR_RETURN(Look before, look(places));
  const Screen screen;
  Look now = before;
  while (true) {
    std::vector<std::string> page = page_of(before, now, Screen::columns());
    Screen::draw(page);
    if (stop.within(interval)) return Status::ok();
    auto next = look(places);
    if (!next) {
      page.insert(page.begin(),
                  shortened("no answer since the figures below: " + next.status().message(), Screen::columns()));
      Screen::draw(page);
      if (stop.within(interval)) return Status::ok();
      continue;
    }
    before = std::exchange(now, std::move(*next));
  }
}

Status show(const Options& o) {
  config::BoxConfig box;
  MOESTRO_RETURN_IF_ERROR(o.flags.read(box));
  MOESTRO_ASSIGN_OR_RETURN(const milliseconds interval, config::parse_duration(o.interval));
  if (interval < kIntervalMin)
    return invalid_argument("--interval " + o.interval + ": at least " + config::format_duration(kIntervalMin));
  if (box.run.dir.empty() && box.model.name.empty())
    return invalid_argument("which store? give --run-dir, or --name as `moestro up` has it, or -c FILE");
  const std::filesystem::path run_dir =
      box.run.dir.empty() ? default_run_dir(box.model.name) : std::filesystem::path(box.run.dir);
  // Where the user named no directory, another user's is not to say which server gets the API key.
  std::error_code error;
  if (box.run.dir.empty() && std::filesystem::exists(run_dir, error))
    MOESTRO_RETURN_IF_ERROR(shm::check_way(run_dir / "http.port", "run directory"));
  MOESTRO_ASSIGN_OR_RETURN(const Server server, server_asked(o, run_dir));
  const Places places{box::store_endpoint(run_dir), server};
  const Stop stop;
  const bool once = o.once || o.json || ::isatty(STDOUT_FILENO) == 0;
  return once ? show_once(places, interval, o.json, stop) : watch(places, interval, stop);
}

}  // namespace

void add_top_command(command_line::App& app, CommandResult& result) {
  command_line::App* command = app.add_subcommand("top",
                                         "What a running cluster does: requests, queue, batches, and what its store "
                                         "holds, reads and hits; drawn anew every second (Ctrl-C ends it)");
  auto options = std::make_shared<Options>(*command);
  command->add_option("--interval", options->interval, "between two looks")->capture_default_str();
  command->add_option(
      "--url", options->url,
      "the orchestrator; default: the one of that run directory, by https with its own certificate if it serves that");
  add_access_options(*command, options->server);
  command->add_flag("--once", options->once, "one page; also where the output is no terminal");
  command->add_flag("--json", options->json, "one look as JSON on stdout, with the rates of one interval");
  command->callback([options, &result] {
    const Status status = show(*options);
    if (!status.is_ok()) fail(result, status, status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailed);
  });
}

}  // namespace moestro::cli

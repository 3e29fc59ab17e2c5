#include "services/cli/top/top_command.h"

#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
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
#include "services/cli/output.h"
#include "services/cli/store/status_json.h"
#include "services/cli/top/view.h"
#include "services/cli/up/run_dir.h"

namespace moestro::cli {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr milliseconds kWithin{3000};
constexpr milliseconds kIntervalMin{100};
constexpr size_t kColumns = 80;  ///< where there is no terminal

struct Options {
  explicit Options(CLI::App& app) : flags(app, {"run.dir", "model.name"}) {}
  box::BoxFlags flags;
  std::string interval = "1s";
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

Result<StoreLook> look(const std::string& endpoint) {
  MOESTRO_ASSIGN_OR_RETURN(auto status, store::query_store(endpoint, kWithin));
  return StoreLook{std::move(status), std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count()};
}

json to_json(const StoreLook& now, const StoreRates& r) {
  json report = status_json(now.status);
  report["rates"] = {{"seconds", r.seconds}, {"hits", r.hits}, {"misses", r.misses}, {"read_bytes", r.read_bytes}, {"loads", r.loads}, {"evictions", r.evictions},
                     {"prefetches", r.prefetches}, {"scrubbed_bytes", r.scrubbed_bytes}};
  for (size_t i = 0; i < r.workers.size(); ++i) report["workers"][i]["rates"] = {{"hits", r.workers[i].hits}, {"misses", r.workers[i].misses}};
  for (size_t i = 0; i < r.drive_bytes.size(); ++i) report["drives"][i]["rates"] = {{"read_bytes", r.drive_bytes[i]}};
  return report;
}

/// Two looks, and what lies between them.
Status show_once(const std::string& endpoint, milliseconds interval, bool as_json, const Stop& stop) {
  MOESTRO_ASSIGN_OR_RETURN(const StoreLook before, look(endpoint));
  if (stop.within(interval)) return Status::ok();
  MOESTRO_ASSIGN_OR_RETURN(const StoreLook now, look(endpoint));
  const StoreRates rates = rates_between(before, now);
  if (as_json) {
    std::printf("%s\n", to_json(now, rates).dump(2, ' ', false, json::error_handler_t::replace).c_str());
    return Status::ok();
  }
  for (const std::string& line : top_page(now, rates, kColumns)) std::printf("%s\n", line.c_str());
  return Status::ok();
}

/// Until a signal. A store that is away is waited for: it may be on its way back.
Status watch(const std::string& endpoint, milliseconds interval, const Stop& stop) {
  MOESTRO_ASSIGN_OR_RETURN(StoreLook before, look(endpoint));
  const Screen screen;
  StoreLook now = before;
  while (true) {
    std::vector<std::string> page = top_page(now, rates_between(before, now), Screen::columns());
    Screen::draw(page);
    if (stop.within(interval)) return Status::ok();
    auto next = look(endpoint);
    if (!next) {
      page.insert(page.begin(), shortened("no answer since the figures below: " + next.status().message(), Screen::columns()));
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
  if (interval < kIntervalMin) return invalid_argument("--interval " + o.interval + ": at least " + config::format_duration(kIntervalMin));
  if (box.run.dir.empty() && box.model.name.empty()) return invalid_argument("which store? give --run-dir, or --name as `moestro up` has it, or -c FILE");
  const std::string endpoint = box::store_endpoint(box.run.dir.empty() ? default_run_dir(box.model.name) : std::filesystem::path(box.run.dir));
  const Stop stop;
  const bool once = o.once || o.json || ::isatty(STDOUT_FILENO) == 0;
  return once ? show_once(endpoint, interval, o.json, stop) : watch(endpoint, interval, stop);
}

}  // namespace

void add_top_command(CLI::App& app, CommandResult& result) {
  CLI::App* command = app.add_subcommand("top", "What a running store holds, reads and hits, drawn anew every second (Ctrl-C ends it)");
  auto options = std::make_shared<Options>(*command);
  command->add_option("--interval", options->interval, "between two looks")->capture_default_str();
  command->add_flag("--once", options->once, "one page; also where the output is no terminal");
  command->add_flag("--json", options->json, "one look as JSON on stdout, with the rates of one interval");
  command->callback([options, &result] {
    const Status status = show(*options);
    if (!status.is_ok()) fail(result, status, status.code() == Code::kInvalidArgument ? kExitUsage : kExitFailed);
  });
}

}  // namespace moestro::cli

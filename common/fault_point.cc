#include "common/fault_point.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <memory>

#include "common/log.h"

namespace moestro::fault {
namespace {

struct Armed {
  std::string point;
  int signal = SIGKILL;
  std::atomic<uint64_t> visits_left{0};
};

std::vector<std::unique_ptr<Armed>>& all() {
  static std::vector<std::unique_ptr<Armed>> armed;
  return armed;
}

std::string known_points() {
  std::string list;
  for (const std::string_view point : points()) list.append(list.empty() ? "" : ", ").append(point);
  return list;
}

Result<std::unique_ptr<Armed>> parse_one(std::string_view text) {
  const size_t equals = std::min(text.find('='), text.size()), colon = std::min(text.find(':', equals), text.size());
  auto armed = std::make_unique<Armed>();
  armed->point = text.substr(0, equals);
  const std::string_view action = equals < colon ? text.substr(equals + 1, colon - equals - 1) : std::string_view();
  armed->signal = action == "stop" ? SIGSTOP : SIGKILL;
  uint64_t visit = 0;
  const char* last = text.data() + text.size();
  const bool number =
      colon < text.size() && std::from_chars(text.data() + colon + 1, last, visit).ptr == last && visit > 0;
  if (!number || (action != "kill" && action != "stop"))
    return invalid_argument("run.fault_points: '" + std::string(text) + "' is not POINT=kill:N or POINT=stop:N");
  if (std::ranges::find(points(), armed->point) == points().end())
    return invalid_argument("run.fault_points: there is no point '" + armed->point + "', but " + known_points());
  armed->visits_left = visit;
  return armed;
}

}  // namespace

const std::vector<std::string_view>& points() {
  static const std::vector<std::string_view> all{
      "offered",    // worker: a slot has been offered, nothing of it is mapped
      "confirming", // worker: holds the lock of its slot, has not said so
      "asked",      // worker: an expert is pinned as intent, the store has been asked
      "loading",    // store: an entry is LOADING, its reads are with the reader
      "resident",   // store: an entry is RESIDENT, whoever waits has not been woken
      "leased",     // worker: holds the pin of an expert that has just arrived
      "evicting",   // store: an entry is EVICTING, nobody's pins have been looked at since
      "adopting",   // store: amid the table that a killed one left
      "adopted",    // store: the table is its own, its epoch is not published yet
      "checking",   // store: adopted entries are being compared with their checksums
  };
  return all;
}

Status arm(const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    MOESTRO_ASSIGN_OR_RETURN(auto one, parse_one(std::string_view(text).substr(at, end - at)));
    all().push_back(std::move(one));
    at = end + 1;
  }
  if (!all().empty()) log::warn("this program will fail on purpose (run.fault_points): {}", text);
  internal::armed = !all().empty();
  return Status::ok();
}

void internal::reached(std::string_view point) {
  for (const auto& fault : all()) {
    if (fault->point != point || fault->visits_left == 0 || --fault->visits_left != 0) continue;
    log::warn("at fault point '{}': {}", point, fault->signal == SIGKILL ? "killed" : "stopped");
    ::kill(::getpid(), fault->signal);
  }
}

}  // namespace moestro::fault

// Batches that other orchestrators work on as well: what they have done is looked at again and again, and said to them
// is that this one lives, and which version of the model it serves.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "common/log.h"
#include "orchestrator/batch/batch_runner.h"

namespace moestro::orchestrator {

namespace {
constexpr std::chrono::milliseconds kAfterConflict{100};

std::string hosts_of(const HeldName& held) {
  return held.hosts.empty() ? "hosts that have not been heard yet" : fmt::format("{}", fmt::join(held.hosts, ", "));
}
}

void BatchRunner::share() {
  const auto now = Clock::now();
  if (shared_ == nullptr || !may_try_) return;
  // Another version is said at once: results that came in before this belong to it, or to the one before.
  const std::string version = version_();
  if (now < look_at_ && version == announced_) return;
  look_at_ = now + std::min(limits_.look, std::chrono::milliseconds(shared_->lease_ms() / 4));
  if (const Status said = announce(version); !said.is_ok()) return stall(said);
  const auto records = state_->unfinished();
  if (!records.is_ok()) return stall(records.status());
  look_at(*records);
  if (const Status claimed = claim_own(); !claimed.is_ok()) return stall(claimed);
  if (const auto counts = state_->count_batches(); counts.is_ok()) figures_.batches = *counts;
  loaded_ = true;
}

Status BatchRunner::announce(const std::string& version) {
  ServedVersion served{version, {around_.model}};
  served.names.insert(served.names.end(), around_.aliases.begin(), around_.aliases.end());
  MOESTRO_ASSIGN_OR_RETURN(auto held, shared_->beat(served));
  announced_ = version;
  leave_to_others(std::move(held));
  return Status::ok();
}

/// Lines of names that belong to another version are not run here; those that are under way go back to the others.
void BatchRunner::leave_to_others(std::vector<HeldName> held) {
  const auto before = std::exchange(around_.held, std::move(held));
  for (const HeldName& one : around_.held) {
    const auto same = [&](const HeldName& other) { return other.name == one.name && other.version == one.version; };
    if (std::ranges::none_of(before, same))
      log::warn(
          "lines of batches of {} are left to {}, with version {} of it, because here it is version {}: serve the same "
          "pack on all hosts; this one goes on when no host serves the other version",
          one.name, hosts_of(one), one.version, *announced_);
  }
  for (const HeldName& one : before)
    if (around_.held_by_others(one.name) == nullptr)
      log::info("this host runs lines of batches of {} again: no host serves version {} any more", one.name,
                one.version);
  for (const auto& job : jobs_) {
    if (!job->served() || job->held_by_others() == nullptr) continue;
    job->drop_taken();
    let_go(*job);
  }
}

void BatchRunner::look_at(const std::vector<BatchRecord>& records) {
  std::set<std::string> open;
  for (const BatchRecord& record : records) {
    open.insert(record.id);
    BatchJob* job = find(record.id);
    if (job == nullptr) {
      take_up(record);
    } else if (job->refresh(record)) {
      if (!job->runs()) let_go(*job);
    }
  }
  for (auto it = jobs_.begin(); it != jobs_.end();) {
    BatchJob& job = *(it++)->get();
    if (!open.contains(job.record().id)) forget(job);
  }
}

/// Lines may be this one's that it was never told of: the answer was lost with the connection, or the question came
/// after all when the connection was long given up. So this does not wait for a new connection.
Status BatchRunner::claim_own() {
  for (const auto& job : jobs_) {
    if (!job->served() || !job->has_lines()) continue;
    std::vector<uint64_t> lines;
    for (const QueuedLine& line : job->taken()) lines.push_back(line.number);
    if (held_ && held_->job == job.get()) lines.push_back(held_->ready.number);
    for (const auto& [id, flight] : flights_)
      if (flight.job == job.get()) lines.push_back(flight.ready.number);
    if (const auto it = results_.find(job.get()); it != results_.end())
      for (const LineResult& r : it->second) lines.push_back(r.line);
    MOESTRO_RETURN_IF_ERROR(shared_->hold_only(job->record().id, lines));
  }
  return Status::ok();
}

/// The batch is over, or not this one's any more.
void BatchRunner::forget(BatchJob& job) {
  let_go(job);
  results_.erase(&job);
  jobs_.remove_if([&](const auto& one) { return one.get() == &job; });
}

/// Others may have computers for it: this one had none for a while.
void BatchRunner::give_back(std::map<uint64_t, Flight>::iterator flight) {
  BatchJob& job = *flight->second.job;
  const uint64_t line = flight->second.ready.number;
  take_at_ = Clock::now() + limits_.retry_max;
  job.rest();
  bytes_ -= flight->second.ready.line.body.size();
  sequences_ -= flight->second.ready.line.sequences;
  flights_.erase(flight);
  --job.open_lines;
  if (const Status given = shared_->give_back(job.record().id, std::span(&line, 1)); !given.is_ok())
    if (!put_off(job, given)) stall(given);  // claim_own gives it back when Redis answers again
}

/// True if somebody else was first: what the state has is looked at again, and nothing stands still.
bool BatchRunner::put_off(BatchJob& job, const Status& why) {
  if (shared_ == nullptr || (why.code() != kConflict && why.code() != Code::kNotFound)) return false;
  log::debug("{}: {}", job.record().id, why.message());
  job.ask_lead();
  look_at_ = std::min(look_at_, Clock::now() + kAfterConflict);
  return true;
}

}  // namespace moestro::orchestrator

#include "orchestrator/batch/batch_runner.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "common/log.h"

namespace moestro::orchestrator {

namespace {
constexpr std::chrono::seconds kSweepEvery{60};
constexpr size_t kListedMax = 16;
constexpr size_t kInDoubtMax = 256;
constexpr int64_t kInDoubtSeconds = 600;  ///< later, the same order is a new one
constexpr std::chrono::milliseconds kLookSoon{50};  ///< not at once: many lines end together

/// Answers that say nothing of the line: the server is full, or nobody is there to compute.
bool may_pass(int status) { return status == 429 || status == 503; }

bool is_same_order(const BatchRecord& a, const BatchRecord& b) {
  const auto order = [](const BatchRecord& r) {
    return std::tie(r.owner, r.model, r.endpoint, r.input_file, r.completion_window, r.metadata, r.output_seconds);
  };
  return order(a) == order(b);
}

std::string no_room_for(const BatchJob& job) {
  return job.record().id + " has no room for its files: " + job.lacks_room();
}

bool full(size_t taken, size_t more, size_t most) { return taken > 0 && taken + more > most; }
}  // namespace

BatchRunner::BatchRunner(std::unique_ptr<StateStore> state, std::unique_ptr<FileStore> files, std::string model,
                         BatchLimits limits, RunLine run_line, Post post, std::function<int64_t()> now,
                         std::vector<std::string> aliases, std::function<std::string()> version)
    : state_(std::move(state)),
      files_(std::move(files)),
      shared_(state_->shared()),
      around_{*state_, shared_, *files_, std::move(model), std::move(now), std::move(aliases)},
      limits_(limits),
      version_(std::move(version)),
      run_line_(std::move(run_line)),
      post_(std::move(post)) {
  load();
  sweep_strays();  // before anybody can upload what it would take for a leftover
  thread_ = std::thread([this] { loop(); });
}

BatchRunner::~BatchRunner() {
  {
    const std::lock_guard lock(inbox_->mutex);
    stop_ = true;
  }
  inbox_->wake.notify_one();
  thread_.join();
  if (shared_ != nullptr && !shared_->leave().is_ok())
    log::info("others get this orchestrator's lines of batches {} ms from now", shared_->lease_ms());
}

void BatchRunner::ask(std::function<void()> task) { inbox_->put(std::move(task)); }

Status BatchRunner::ask_for_client(std::function<void()> task) {
  {
    const std::lock_guard lock(inbox_->mutex);
    if (inbox_->questions >= limits_.questions_max)
      return exhausted("too many requests wait for the state of files, batches and responses; try again later");
    ++inbox_->questions;
  }
  inbox_->put(std::move(task));
  return Status::ok();
}

BatchFigures BatchRunner::figures() const {
  const std::lock_guard lock(inbox_->mutex);
  return published_;
}

void BatchRunner::stop_starting() {
  {
    const std::lock_guard lock(inbox_->mutex);
    starting_ = false;
    is_settled_ = false;
  }
  ask([] {});  // the thread is to look how things stand
}

bool BatchRunner::wait_settled(std::chrono::milliseconds limit) {
  std::unique_lock lock(inbox_->mutex);
  return settled_.wait_for(lock, limit, [this] { return is_settled_; });
}

void BatchRunner::loop() {
  for (bool more = true;;) {
    std::deque<std::function<void()>> tasks;
    {
      std::unique_lock lock(inbox_->mutex);
      if (!more) inbox_->wake.wait_until(lock, next_due(), [this] { return stop_ || !inbox_->tasks.empty(); });
      if (stop_) return;
      tasks.swap(inbox_->tasks);
      inbox_->questions = 0;
    }
    may_try_ = figures_.stalled.empty() || Clock::now() >= stalled_until_;
    stalled_now_ = false;
    if (!loaded_) load();
    for (const auto& task : tasks) task();
    share();
    keep_results();
    expire();
    more = work();
    more = tidy() || more;
    fill();
    more = more || (!results_.empty() && figures_.stalled.empty());
    if (may_try_ && Clock::now() >= sweep_at_) sweep_files();
    publish();
  }
}

/// What a former process has left. A state that could not be opened at first may have got batches of this one
/// meanwhile.
void BatchRunner::load() {
  if (shared_ != nullptr) return share();
  const auto unfinished = state_->unfinished();
  if (!unfinished.is_ok()) return stall(unfinished.status());
  loaded_ = true;
  for (const BatchRecord& record : *unfinished)
    if (find(record.id) == nullptr) take_up(record);
  if (const size_t served = served_jobs(); served > 0) log::info("{} batches go on", served);
}

/// A batch that another process has begun, or another model's.
void BatchRunner::take_up(const BatchRecord& record) {
  jobs_.push_back(std::make_unique<BatchJob>(around_, record));
  if (jobs_.back()->served()) return;
  log::info("{} waits: it is for the model {}, and {} is served here", record.id, record.model, around_.model);
}

size_t BatchRunner::served_jobs() const {
  return static_cast<size_t>(std::ranges::count_if(jobs_, [](const auto& job) { return job->served(); }));
}

void BatchRunner::sweep_strays() {
  if (!loaded_ || !files_->keeps_strays()) return;
  const auto all = state_->files({.limit = INT64_MAX});
  if (!all.is_ok()) return;
  std::set<std::string> known;
  for (const FileRecord& file : *all) known.insert(file.id);
  files_->sweep([&](const std::string& id) { return known.contains(id); });
}

BatchJob* BatchRunner::find(const std::string& id) const {
  for (const auto& job : jobs_)
    if (job->record().id == id) return job.get();
  return nullptr;
}

Status BatchRunner::has_place() const {
  const size_t open = served_jobs();
  if (open < limits_.batches_max) return Status::ok();
  return exhausted("there are " + std::to_string(open) + " batches that are not over; try again when some are");
}

/// Clients send an order again that was answered with 503. Where the state had not answered, the batch may be there.
Result<BatchRecord> BatchRunner::add(BatchRecord record) {
  std::erase_if(in_doubt_, [&](const BatchRecord& r) { return record.created_at - r.created_at > kInDoubtSeconds; });
  const auto before = std::ranges::find_if(in_doubt_, [&](const BatchRecord& r) { return is_same_order(r, record); });
  const bool again = before != in_doubt_.end();
  if (again) record.id = before->id;
  const Status added = state_->add_batch(record);
  if (added.code() == Code::kUnavailable && !again) {
    if (in_doubt_.size() == kInDoubtMax) in_doubt_.pop_front();
    in_doubt_.push_back(record);
  }
  MOESTRO_RETURN_IF_ERROR(added);
  if (again) {
    MOESTRO_ASSIGN_OR_RETURN(const auto kept, state_->batch(record.id));
    in_doubt_.erase(before);
    if (kept) record = *kept;
  }
  if (!is_over(record.status) && find(record.id) == nullptr)
    jobs_.push_back(std::make_unique<BatchJob>(around_, record));
  return record;
}

Result<BatchRecord> BatchRunner::cancel(const std::string& id, bool drop_results) {
  MOESTRO_ASSIGN_OR_RETURN(const auto kept, state_->batch(id));
  if (!kept) return not_found("there is no batch '" + id + "'");
  BatchJob* job = find(id);
  std::unique_ptr<BatchJob> unknown;  // so new that it was not looked at yet: who has it finds out
  if (shared_ != nullptr && job != nullptr && job->refresh(*kept)) let_go(*job);
  if (shared_ != nullptr && job == nullptr && !is_over(kept->status))
    job = (unknown = std::make_unique<BatchJob>(around_, *kept)).get();
  if (job == nullptr || job->over())
    return invalid_argument("the batch is " + std::string(batch_status_name(kept->status)) +
                            " and cannot be cancelled any more");
  if (job->record().status == BatchStatus::kCancelling && (!drop_results || job->drops_results())) return *kept;
  MOESTRO_RETURN_IF_ERROR(job->end(BatchStatus::kCancelled, drop_results));
  let_go(*job);
  MOESTRO_ASSIGN_OR_RETURN(const auto now, state_->batch(id));
  return now ? *now : job->record();
}

/// Lines that are under way are given up; what is done and not kept yet is still kept, if the batch keeps its results.
void BatchRunner::let_go(BatchJob& job) {
  if (const auto done = results_.find(&job); job.drops_results() && done != results_.end()) {
    job.open_lines -= done->second.size();
    results_.erase(done);
  }
  const auto leave = [&](Flight& flight) {
    if (flight.exchange) post_([exchange = flight.exchange] { exchange->leave(); });
    --job.open_lines;
  };
  if (held_ && held_->job == &job) {
    leave(*held_);
    held_.reset();
  }
  for (auto it = flights_.begin(); it != flights_.end();) {
    if (it->second.job != &job) {
      ++it;
      continue;
    }
    leave(it->second);
    bytes_ -= it->second.ready.line.body.size();
    sequences_ -= it->second.ready.line.sequences;
    it = flights_.erase(it);
  }
}

void BatchRunner::expire() {
  if (!may_try_) return;
  for (const auto& job : jobs_) {
    const BatchStatus status = job->record().status;
    if (status != BatchStatus::kValidating && status != BatchStatus::kInProgress) continue;
    if (now() < job->record().expires_at) continue;
    if (const Status ended = job->end(BatchStatus::kExpired); !ended.is_ok()) {
      if (put_off(*job, ended)) continue;
      return stall(ended);
    }
    let_go(*job);
  }
}

/// A piece of every batch's checking or writing; true if there is more. Those whose files lack room wait for it alone:
/// others go on, and may make some.
bool BatchRunner::work() {
  bool more = false;
  const auto now = Clock::now();
  const bool try_for_room = now >= room_at_;
  for (auto it = jobs_.begin(); may_try_ && it != jobs_.end();) {
    BatchJob& job = *(it++)->get();
    const bool lacked_room = !job.lacks_room().empty();
    if (lacked_room && !try_for_room) continue;
    const uint64_t bad_before = job.bad_lines;
    const auto worked = job.work();
    figures_.lines_bad += job.bad_lines - bad_before;  // those that its check has refused
    if (!job.lacks_room().empty()) {
      if (!lacked_room) log::warn("{}", no_room_for(job));
      room_at_ = now + limits_.stalled;
      continue;
    }
    if (!worked.is_ok()) {
      if (!put_off(job, worked.status())) stall(worked.status());
      continue;
    }
    more = more || *worked;
    if (job.over()) forget(job);
  }
  if (may_try_ && results_.empty() && loaded_ && !stalled_now_ && !figures_.stalled.empty()) {
    log::info("batches go on");
    figures_.stalled.clear();
    more = true;
  }
  return more;
}

/// A piece of what batches that are over have left in the state; true if there is more.
bool BatchRunner::tidy() {
  if (!may_try_) return false;
  const auto more = state_->tidy();
  if (!more.is_ok()) stall(more.status());
  return more.is_ok() && *more;
}

bool BatchRunner::fits(const BatchLine& line) const {
  return room() > 0 && !full(bytes_, line.body.size(), limits_.bytes_each * limits_.lines_in_flight()) &&
         !full(sequences_, line.sequences, limits_.sequences_in_flight);
}

/// Lines that may be given out in addition.
size_t BatchRunner::room() const {
  const size_t most = limits_.lines_in_flight();
  return most - std::min(most, flights_.size());
}

void BatchRunner::fill() {
  {
    const std::lock_guard lock(inbox_->mutex);
    if (!starting_) return;
  }
  if (!figures_.stalled.empty()) return;
  const auto now = Clock::now();
  for (auto& [id, flight] : flights_)
    if (!flight.exchange && now >= flight.due) begin(id, flight);
  while (room() > 0 && give_out()) {
  }
}

/// Starts the next line: of each batch one in turn. False if there is none, or no room for it.
bool BatchRunner::give_out() {
  for (size_t tried = 0; !held_ && tried < jobs_.size(); ++tried) {
    BatchJob& job = *jobs_.front();
    jobs_.splice(jobs_.end(), jobs_, jobs_.begin());
    auto ready = job.next(Clock::now() < take_at_ ? 0 : room());
    if (!ready.is_ok()) {
      if (put_off(job, ready.status())) continue;
      stall(ready.status());
      return false;
    }
    if (!*ready) {
      if (job.over()) ask([] {});  // it has failed: to be forgotten at once
      continue;
    }
    if ((*ready)->refused) {
      results_[&job].push_back(std::move(*(*ready)->refused));
      return true;
    }
    held_ = Flight{&job, std::move(**ready), nullptr};
  }
  if (!held_ || !fits(held_->ready.line)) return false;
  const uint64_t id = next_flight_++;
  bytes_ += held_->ready.line.body.size();
  sequences_ += held_->ready.line.sequences;
  Flight& flight = flights_.emplace(id, std::move(*held_)).first->second;
  held_.reset();
  begin(id, flight);
  return true;
}

void BatchRunner::begin(uint64_t id, Flight& flight) {
  ++flight.tries;
  const std::string name = flight.job->record().id + "/" + std::to_string(flight.ready.number);
  flight.exchange = std::make_shared<LineExchange>(name, [this, inbox = inbox_, id](int status, std::string body) {
    inbox->put([this, id, status, answer = std::move(body)] { answered(id, status, answer); });
  });
  HttpRequest request{"POST", flight.job->record().endpoint, flight.ready.line.body};
  request.owner = flight.job->record().id;
  request.project = flight.job->record().owner;
  post_([this, exchange = flight.exchange, request = std::move(request)]() mutable {
    run_line_(std::move(request), exchange);
  });
}

void BatchRunner::answered(uint64_t id, int status, const std::string& body) {
  const auto it = flights_.find(id);
  if (it == flights_.end()) return;  // given up meanwhile
  Flight& flight = it->second;
  if (may_pass(status)) {
    auto pause = limits_.retry_first;
    for (int i = 1; i < flight.tries && pause < limits_.retry_max; ++i) pause *= 2;
    ++figures_.retries;
    if (shared_ != nullptr && (status == 503 || flight.tries >= limits_.tries_max)) return give_back(it);
    flight.exchange = nullptr;
    flight.due = Clock::now() + std::min(pause, limits_.retry_max);
    return;
  }
  const BatchJob::Ready& ready = flight.ready;
  results_[flight.job].push_back(
      answered_line({flight.job->record().id, ready.number}, ready.line.custom_id, status, body));
  bytes_ -= ready.line.body.size();
  sequences_ -= ready.line.sequences;
  flights_.erase(it);
}

/// All that has come in since the last time is one step of the state for each batch.
void BatchRunner::keep_results() {
  for (auto it = results_.begin(); may_try_ && it != results_.end();) {
    BatchJob& job = *it->first;
    const auto kept = state_->put_results(job.record().id, it->second);
    if (!kept.is_ok() && !put_off(job, kept.status())) {
      stall(kept.status());
      ++it;
      continue;
    }
    const auto results = std::move(it->second);
    it = results_.erase(it);
    job.open_lines -= results.size();
    if (!kept.is_ok()) continue;  // the batch is gone, and they with it
    figures_.lines_good += kept->good, figures_.lines_bad += kept->bad;
    if (!figures_.stalled.empty()) look_at_ = Clock::now();  // the record may have them since they were sent first
    job.good_lines += kept->good, job.bad_lines += kept->bad;
    for (const LineResult& r : results) job.mark_done(r.line);
    if (job.open_lines == 0) look_at_ = std::min(look_at_, Clock::now() + kLookSoon);  // perhaps these were the last
  }
}

/// Results wait in memory, no more than were in flight, and nothing new begins until the state can be written again. A
/// state that does not answer is not asked again in this turn, because each question may take seconds.
void BatchRunner::stall(const Status& why) {
  stalled_now_ = true;
  may_try_ = may_try_ && why.code() == Code::kExhausted;
  if (figures_.stalled != why.message()) log::error("batches stand still: {}", why.message());
  figures_.stalled = why.message();
  stalled_until_ = Clock::now() + limits_.stalled;
}

void BatchRunner::sweep_files() {
  sweep_at_ = Clock::now() + kSweepEvery;
  const auto expired = state_->expired_files(now());
  if (!expired.is_ok()) return stall(expired.status());
  for (const FileRecord& file : *expired) {
    const Status removed = state_->remove_file(file.id);
    if (removed.code() == kConflict) continue;  // a batch needs it
    if (!removed.is_ok()) return stall(removed);
    files_->remove(file.id);
  }
}

/// With the inbox's mutex. While batches stand still, or no line may begin, no line that is to be tried again wakes it.
BatchRunner::Clock::time_point BatchRunner::next_due() const {
  if (!figures_.stalled.empty()) return stalled_until_;
  const auto now = Clock::now();
  auto due = std::min(sweep_at_, now + std::chrono::seconds(60));
  if (one_without_room() != nullptr) due = std::min(due, room_at_);
  if (shared_ != nullptr) due = std::min(due, look_at_);
  else if (!jobs_.empty()) due = std::min(due, now + limits_.look);  // there may be more workers than before
  if (starting_)
    for (const auto& [id, flight] : flights_)
      if (!flight.exchange) due = std::min(due, flight.due);
  for (const auto& job : jobs_)
    if (const int64_t left = job->record().expires_at - this->now(); left < 60)
      due = std::min(due, now + std::chrono::seconds(std::max<int64_t>(left, 1)));
  return due;
}

void BatchRunner::list_under_way() {
  std::vector<const BatchJob*> jobs;
  for (const auto& job : jobs_) jobs.push_back(job.get());
  const auto older = [](const BatchJob* a, const BatchJob* b) {
    return std::tie(a->record().created_at, a->record().id) < std::tie(b->record().created_at, b->record().id);
  };
  const auto end = jobs.begin() + static_cast<std::ptrdiff_t>(std::min(kListedMax, jobs.size()));
  std::partial_sort(jobs.begin(), end, jobs.end(), older);
  figures_.under_way.clear();
  for (auto it = jobs.begin(); it != end; ++it) {
    const BatchRecord& r = (*it)->record();
    figures_.under_way.push_back(
        {r.id, r.status, r.total, r.completed + (*it)->good_lines, r.failed + (*it)->bad_lines, r.owner,
         (*it)->served() ? "" : r.model, (*it)->held_by_others() ? (*it)->held_by_others()->version : ""});
  }
}

const BatchJob* BatchRunner::one_without_room() const {
  const auto it = std::ranges::find_if(jobs_, [](const auto& job) { return !job->lacks_room().empty(); });
  return it == jobs_.end() ? nullptr : it->get();
}

void BatchRunner::publish() {
  if (shared_ == nullptr)
    if (const auto counts = state_->count_batches(); counts.is_ok()) figures_.batches = *counts;
  figures_.in_flight = flights_.size();
  list_under_way();
  figures_.version = announced_.value_or("");
  figures_.held = around_.held;
  const bool under_way =
      std::any_of(flights_.begin(), flights_.end(), [](const auto& f) { return f.second.exchange != nullptr; });
  const BatchJob* const waits = one_without_room();
  const std::lock_guard lock(inbox_->mutex);
  published_ = figures_;
  if (published_.stalled.empty() && waits != nullptr) published_.stalled = no_room_for(*waits);
  is_settled_ = !starting_ && !under_way && results_.empty();
  if (is_settled_) settled_.notify_all();
}

}  // namespace moestro::orchestrator

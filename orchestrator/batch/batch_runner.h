#pragma once
// The thread that owns the state and runs batches. Other threads send it tasks.

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "orchestrator/batch/batch_job.h"
#include "orchestrator/batch/line_exchange.h"
#include "orchestrator/http/exchange.h"

namespace moestro::orchestrator {

struct BatchLimits {
  std::function<size_t()> lines_in_flight = [] { return size_t{64}; };  ///< asked again and again
  uint64_t bytes_each = 32 << 10;           ///< of the bodies of lines in flight, on average; one line may have more
  uint64_t sequences_in_flight = 2048;      ///< likewise
  size_t batches_max = 256;                 ///< batches that have not ended
  size_t questions_max = 1024;              ///< of clients to the state, waiting
  std::chrono::milliseconds retry_first{250}, retry_max{5000};  ///< pauses for a line while the server is full
  std::chrono::milliseconds stalled{1000};  ///< between tries while the state cannot be written
  std::chrono::milliseconds look{
      1000};  ///< pause between checks of what other orchestrators did to shared batches, less than their lease; and
              ///< of lines_in_flight
  int tries_max = 4;                        ///< tries of a shared line while the server is full; then others may take
                                            ///< it
};

/// For /metrics and the status page.
struct BatchFigures {
  std::vector<uint64_t> batches = std::vector<uint64_t>(kBatchStatuses);  ///< by BatchStatus
  uint64_t lines_good = 0, lines_bad = 0, retries = 0;       ///< since the start
  uint64_t in_flight = 0;
  struct UnderWay {
    std::string id;
    BatchStatus status;
    uint64_t total = 0, completed = 0, failed = 0;  ///< lines
    std::string owner;
    std::string waits_for;  ///< the model, if it is not served here
    std::string waits_for_version;  ///< of the model, if others run its lines with another one than this
  };
  std::vector<UnderWay> under_way;  ///< the oldest that have not ended, at most 16
  std::string version;         ///< that is served here, as others that share the state compare it
  std::vector<HeldName> held;  ///< names of the model whose lines others run with another version
  std::string stalled;  ///< why batches do not continue, or the files of one have no room; empty: all is well
};

class BatchRunner {
 public:
  /// `run_line`: gives a request to the API on the server's thread, by `post`.
  using RunLine = std::function<void(HttpRequest, std::shared_ptr<Exchange>)>;
  using Post = std::function<void(std::function<void()>)>;

  /// Removes files that no record names, and goes on with what the state says is not over. `aliases`: further names
  /// that lines may have for the model. `version`: what answers depend on, as orchestrators that share the state
  /// compare it; empty: it is not known yet. It is called on this thread.
  BatchRunner(std::unique_ptr<StateStore> state, std::unique_ptr<FileStore> files, std::string model,
              BatchLimits limits, RunLine run_line, Post post, std::function<int64_t()> now,
              std::vector<std::string> aliases, std::function<std::string()> version);
  ~BatchRunner();

  /// From any thread: runs `task` on this one's.
  void ask(std::function<void()> task);
  /// From any thread, for a client: asks on this thread, and tells the answer on the server's. Nothing else lets go of
  /// `tell`, so that it may hold an exchange. kExhausted: too many wait already, and neither is called.
  template <typename Answer>
  Status ask(std::function<Answer()> question, std::function<void(Answer)> tell) {
    return ask_for_client([question = std::move(question), tell = std::move(tell), post = post_]() mutable {
      post([answer = std::make_shared<Answer>(question()), tell = std::move(tell)] { tell(std::move(*answer)); });
    });
  }
  BatchFigures figures() const;
  /// Gives out no more lines. From any thread.
  void stop_starting();
  /// Waits until all given-out lines have results that are stored; false if `limit` passes before.
  bool wait_settled(std::chrono::milliseconds limit);

  // Only on its own thread.
  StateStore& state() { return *state_; }
  const FileStore& files() const { return *files_; }
  int64_t now() const { return around_.now(); }
  /// kExhausted: there are as many batches as there may be.
  Status has_place() const;
  /// The batch as it is kept, durable when this returns. kUnavailable: it may be kept all the same; the same order,
  /// sent again, then gets that one.
  Result<BatchRecord> add(BatchRecord record);
  /// `drop_results`: without files, which may have no room; also of a batch that waits for it, cancelled or not.
  Result<BatchRecord> cancel(const std::string& id, bool drop_results = false);

 private:
  using Clock = std::chrono::steady_clock;
  struct Flight {
    BatchJob* job;
    BatchJob::Ready ready;
    std::shared_ptr<LineExchange> exchange;  ///< null: waits for `due`
    int tries = 0;
    Clock::time_point due{};
  };

  /// Tasks for the thread. The inbox may outlive the runner; it is then no longer read.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> tasks;
    size_t questions = 0;  ///< of clients, among them
    void put(std::function<void()> task) {
      {
        const std::lock_guard lock(mutex);
        tasks.push_back(std::move(task));
      }
      wake.notify_one();
    }
  };

  Status ask_for_client(std::function<void()> task);
  void loop();
  void load();
  void sweep_strays();
  void share();
  void look_at(const std::vector<BatchRecord>& records);
  void take_up(const BatchRecord& record);
  Status claim_own();
  void forget(BatchJob& job);
  void give_back(std::map<uint64_t, Flight>::iterator flight);
  Status announce(const std::string& version);
  void leave_to_others(std::vector<HeldName> held);
  bool work();
  bool tidy();
  void expire();
  void fill();
  size_t served_jobs() const;
  bool fits(const BatchLine& line) const;
  size_t room() const;
  bool give_out();
  void begin(uint64_t id, Flight& flight);
  void answered(uint64_t id, int status, const std::string& body);
  void let_go(BatchJob& job);
  void keep_results();
  void stall(const Status& why);
  bool put_off(BatchJob& job, const Status& why);
  void sweep_files();
  void list_under_way();
  const BatchJob* one_without_room() const;
  void publish();
  Clock::time_point next_due() const;
  BatchJob* find(const std::string& id) const;

  const std::unique_ptr<StateStore> state_;
  const std::unique_ptr<FileStore> files_;
  SharedLines* const shared_;  ///< null: no other orchestrator works on these batches
  BatchSurroundings around_;
  const BatchLimits limits_;
  const std::function<std::string()> version_;
  const RunLine run_line_;
  const Post post_;

  // Its thread only.
  std::list<std::unique_ptr<BatchJob>> jobs_;  ///< in the order in which they give out lines
  std::map<uint64_t, Flight> flights_;
  std::optional<Flight> held_;  ///< given out by its job, and waits for room
  std::map<BatchJob*, std::vector<LineResult>> results_;  ///< not kept yet
  std::deque<BatchRecord> in_doubt_;  ///< the state was asked to add them, and did not answer; the latest
  uint64_t next_flight_ = 1, bytes_ = 0, sequences_ = 0;
  Clock::time_point stalled_until_{}, sweep_at_{};
  Clock::time_point room_at_{};  ///< the next try of batches whose files lack room
  bool may_try_ = true;       ///< in this turn of the loop, whatever stands still in it
  bool stalled_now_ = false;  ///< something has, in this turn
  std::optional<std::string> announced_;  ///< the version that others were told of last
  Clock::time_point look_at_{}, take_at_{};  ///< for shared batches: the next check, and the earliest time to take
                                             ///< lines
  BatchFigures figures_;
  bool loaded_ = false;

  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  std::condition_variable settled_;  ///< with the inbox's mutex, as what follows
  bool stop_ = false, starting_ = true, is_settled_ = true;
  BatchFigures published_;
  std::thread thread_;  ///< last: it uses the others
};

}  // namespace moestro::orchestrator

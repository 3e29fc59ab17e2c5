#pragma once
// One running store.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/net/zmq_socket.h"
#include "common/status.h"
#include "store/arena/arena_files.h"
#include "store/arena/arena_size.h"
#include "store/machine/store_machine.h"
#include "store/reader/blob_loader.h"
#include "store/server/arena_state.h"
#include "store/server/catalogue.h"
#include "store/server/messages.h"
#include "store/server/resident_check.h"
#include "store/server/refusals.h"
#include "store/server/scrubber.h"
#include "store/server/store_options.h"
#include "store/server/warm_load.h"
#include "store/server/warm_set.h"

namespace moestro::store {

class StoreServer {
 public:
  /// Opens the packs, takes the arena directory, backs the arena, starts the reader, binds the socket. `stop` (set by a
  /// signal handler) ends it early with kCancelled.
  static Result<std::unique_ptr<StoreServer>> start(StoreOptions options, const std::atomic<bool>& stop);
  ~StoreServer();

  /// Serves until `stop`, then waits for the reads in flight and removes its files.
  Status run(const std::atomic<bool>& stop);

  std::string endpoint() const { return endpoint_; }

 private:
  using TimePoint = std::chrono::steady_clock::time_point;
  struct Worker {
    std::string peer, client;
    uint64_t incarnation = 0;
    std::string model;
    uint32_t pack = 0;  ///< the version of the model's pack that it attached with, until it leaves
    bool confirmed = false;
    TimePoint offered;
    uint64_t fetches = 0;
    bool named = false;  ///< in the log, for pinning more than its share
  };
  StoreServer() = default;
  Status open(StoreOptions options, const std::atomic<bool>& stop);
  ArenaWish arena_wish() const;
  Result<uint64_t> choose_arena_bytes();
  /// The number of table entries for this many blobs, with room for packs that are added later.
  static uint32_t entries_for(size_t blobs) { return std::max(4096u, 4 * static_cast<uint32_t>(blobs)); }
  void take_change_key();
  Status begin_anew(const std::atomic<bool>& stop);
  Result<uint64_t> make_machine_anew();
  /// `segment_bytes`: 0, or those of a former store whose arena is adopted.
  Status make_machine(uint64_t arena_bytes, uint64_t segment_bytes, uint32_t entries);
  // store_window.cc
  tier::DenseNeeds dense_needs() const { return catalogue_.dense_needs(std::max(options_.workers, 1U)); }
  Status plan_window(uint64_t arena_bytes);
  void adopt_window(const ArenaDirectory& left);
  void say_window() const;
  Status back_arena(uint64_t bytes, const std::atomic<bool>& stop);
  Status start_reader(const StoreOptions& options);
  Result<std::unique_ptr<Reader>> make_reader(const StoreOptions& options, uint32_t drive) const;
  std::span<std::byte> probe_memory() const;
  DriveOptions measure_drive(Reader& reader, uint32_t drive, const StoreOptions& options);

  // scrub.cc
  void scrub();
  std::chrono::milliseconds until_scrub(std::chrono::milliseconds otherwise) const;

  // store_adoption.cc
  ArenaDirectory directory() const;
  ArenaDirectory directory_of(uint64_t arena_bytes, uint64_t segment_bytes) const;
  void note_packs();
  /// True: the arena of a killed store was adopted. False: there is none any more.
  Result<bool> adopt_or_discard(const std::atomic<bool>& stop);
  Status fits(const ArenaDirectory& left) const;
  Status adopt_former(const ArenaDirectory& left);
  Status adopt_workers();
  void check_residents();

  // store_kept.cc
  Result<std::vector<ModelSource>> models_to_open();
  void note_models();

  // store_warmth.cc
  void plan_warm_start();
  void warm_up();
  void note_warm_set();
  std::vector<const Catalogue::Pack*> packs_of(const WarmSet& set) const;
  void close_down();

  std::chrono::milliseconds wait_at_most() const;
  Status receive();
  void handle(const std::string& peer, std::span<const std::byte> body);
  void answer(const std::string& peer, const AttachRequest& request);
  void answer(const std::string& peer, const ConfirmRequest& request);
  void answer(const std::string& peer, const DetachRequest& request);
  void answer(const std::string& peer, const FetchRequest& request);
  void answer(const std::string& peer, const CancelRequest& request);
  void answer(const std::string& peer, const StatusRequest& request);
  void answer(const std::string& peer, const ChangePacksRequest& request);
  Status check_shares(uint64_t arena_bytes) const;
  void assign_shares();
  Result<std::string> add_model(const std::string& name, const std::filesystem::path& dir);
  Result<std::string> replace_model(const std::string& name, const std::filesystem::path& dir);
  Result<std::string> remove_model(const std::string& name);
  Result<uint32_t> take_in(Catalogue::Pack seen);
  Status mend(uint32_t pack);
  void give_files_to_reader(uint32_t first, uint32_t count);
  bool files_being_read(uint32_t first) const;
  void close_files(uint32_t first, uint32_t count);
  void release_unused_packs();
  uint32_t workers_of(uint32_t pack) const;
  ModelMask attached_models() const;
  void answer(const std::string& peer, const ForeseeRequest& request);
  void refuse(const std::string& peer, const Status& why);
  void reply(const std::string& peer, const net::Bytes& body);
  /// The worker that sent a message. If it is not that slot's holder, sends a refusal and returns null.
  Worker* holder(const std::string& peer, const Session& session);

  void pump_reads();
  void perform(const Actions& actions);
  void begin_read(const Action& action);
  void begin_check(const Action& action);
  void notify(const Action& action);
  void look_around();
  void look_for_dead_workers();
  void name_who_pins_too_much(bool blocked);
  uint64_t pinned_bytes(uint32_t slot) const;
  std::vector<ModelFigures> model_figures() const;
  void drop_worker(uint32_t slot, const char* why);
  StoreFigures figures() const;
  ReadingFigures reading_figures() const;
  /// The table entries of the blobs that a worker names. If one does not exist, sends a refusal and returns nullopt.
  std::optional<std::vector<uint32_t>> entries_of(const Worker& worker, const FetchRequest& request);

  StoreOptions options_;
  std::string endpoint_;
  Catalogue catalogue_;
  std::unique_ptr<ArenaFiles> files_;  ///< outlives the loader, whose reads write to it
  std::optional<ArenaState> state_;
  std::unique_ptr<StoreMachine> machine_;
  std::unique_ptr<BlobLoader> loader_;
  std::optional<net::RouterSocket> socket_;
  std::array<std::optional<Worker>, kWorkerSlotsMax> workers_;
  struct UnderWay {
    uint32_t entry = 0, source = 0;
    uint32_t first_file = 0;  ///< of the pack that it reads from
  };
  std::vector<std::pair<uint32_t, uint32_t>>
      files_to_close_;  ///< first, count: of repaired packs, until nothing is read from them
  std::unordered_map<uint64_t, UnderWay> under_way_;  ///< by load
  RefusalLog refusals_;
  /// The last incarnations that have left: their last words may come after their locks have said it, and are no
  /// refusal.
  std::deque<uint64_t> gone_;
  std::string change_key_;
  uint32_t entries_max_ = 0;  ///< of the table
  WindowShape window_;
  bool new_arena_ = false;        ///< nothing has been read into it yet: at start
  bool arena_of_before_ = false;  ///< the predecessor's arena has the requested size, whatever it served
  uint64_t epoch_ = 0;
  ResidentCheck check_;
  WarmLoad warm_;
  Actions adopted_actions_;  ///< kept until there is a reader to perform them
  struct Adoption {
    double seconds = 0;
  } adoption_;
  TimePoint warm_said_{}, looked_{}, looked_around_{}, not_blocked_{};
  std::vector<uint64_t> drive_speeds_;  ///< bytes a second, as measured; 0: not measured
  Scrubber scrubber_;
  std::optional<TimePoint> memory_changed_;  ///< when it was last found, by scrubbing or by the check of an adoption
};

}  // namespace moestro::store

#pragma once
// The KV of running sequences on their way between host memory and a CUDA device, on a stream of copies of each
// direction, beside those of experts. Host memory is pinned (kernels::Memory::host_side).
//
// A card has one copy engine for each direction, which carries what all streams have queued. So a task is cut into
// pieces, and few bytes are queued at a time: an expert, or a router's choice, waits for no more than kAheadBytes of KV
// (docs/decisions/0066). The next piece is queued when one has ended, by the thread that runs the steps, whenever it
// looks. Pieces wait for no kernel: the caller begins a task when what it needs has ended.

#include <array>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

#include "services/worker/device/cuda_slots.h"
#include "services/worker/engine/kv_link.h"

namespace moestro::device {

class CudaKv final : public engine::KvLink {
 public:
  /// Bytes of a direction that are queued and have not arrived, at most. A PCIe 5 link carries them in 150 us, and the
  /// host looks every 50 to 125 us. Pieces are small, so that nearly all of these bytes are left when it has looked.
  static constexpr int64_t kAheadBytes = int64_t{8} << 20;
  static constexpr int64_t kPieceBytes = kAheadBytes / 8;  ///< unless CudaSlots::chunk_bytes is given

  struct Calls {
    std::function<void(const Status&)> failed;  ///< told of the first call that fails
    /// Whether experts that come now go before what a task brings in. It is asked again at each look, so it must not
    /// stay true when nothing comes.
    std::function<bool(int32_t moe_layer)> gives_way;
  };
  /// `clock` outlives it.
  CudaKv(const CudaSlots& device, const Clock& clock, Calls calls);
  ~CudaKv() override;
  CudaKv(const CudaKv&) = delete;
  CudaKv& operator=(const CudaKv&) = delete;
  /// kExhausted: the device has no streams to give.
  Status make();

  void begin(lanes::TaskId id, const lanes::Task& task, int32_t moe_layer,
             std::span<const engine::KvMove> moves) override;
  void end_elsewhere(lanes::TaskId id) override;
  void take_ended(std::vector<lanes::TaskId>& ended) override;
  void wait(std::chrono::milliseconds timeout) override;
  void abandon() override;
  void take_carried(std::vector<engine::KvCarried>& out) override;
  Status status() const override { return failure_; }

 private:
  struct Job {
    lanes::TaskId id = -1;
    engine::KvCarried carried;  ///< a stretch, begun by its first piece
    int32_t moe_layer = 0;
    engine::KvMoves moves;
    int64_t left = 0;  ///< not queued
  };
  /// Of the first job that has not ended.
  struct Piece {
    int64_t bytes = 0;
    bool last = false;                 ///< of its job
    MoestroCudaEvent begin = nullptr;  ///< null: it begins when the one before ends
    MoestroCudaEvent end = nullptr;
  };
  /// One direction.
  struct Way {
    MoestroCudaStream stream = nullptr;
    bool in = false;
    std::deque<Job> jobs;
    size_t queued = 0;       ///< jobs, from the first, that have been queued whole
    std::deque<Piece> pieces;  ///< under way
    int64_t ahead = 0;       ///< their bytes
    Nanos last_end{0};
  };
  Way& way_of(lanes::Lane lane) { return ways_[lane == lanes::Lane::kHostToDevice ? 0 : 1]; }
  bool call(const char* name, MoestroCudaResult result);
  MoestroCudaEvent obtain_event();
  void give_back(const Piece& piece);
  void fill(Way& way);
  void queue_piece(Way& way, Job& job, int64_t bytes);
  bool has_arrived(const Way& way);
  void end_piece(Way& way);
  /// What has arrived, and what may follow it.
  void look();

  const CudaSlots device_;
  const Clock& clock_;
  const Calls calls_;
  const int64_t piece_bytes_, ahead_bytes_;
  std::array<Way, 2> ways_;  ///< in, out
  std::vector<MoestroCudaEvent> events_;  ///< timed; used by no piece
  std::vector<lanes::TaskId> ended_;
  std::vector<engine::KvCarried> carried_;
  Status failure_;
  std::mutex mutex_;
  std::vector<lanes::TaskId> elsewhere_;  ///< under the lock
};

}  // namespace moestro::device

#pragma once
// A socket that plays the orchestrator for one worker.

#include <array>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/net/zmq_socket.h"
#include "common/wire/worker_messages_generated.h"

namespace moestro::worker::testing {

template <typename T>
std::vector<std::byte> message(flatbuffers::FlatBufferBuilder& b, wire::WorkerBody type, flatbuffers::Offset<T> body) {
  wire::FinishWorkerMessageBuffer(b, wire::CreateWorkerMessage(b, type, body.Union()));
  const auto* begin = reinterpret_cast<const std::byte*>(b.GetBufferPointer());
  return {begin, begin + b.GetSize()};
}

class PlayedOrchestrator {
 public:
  /// Its socket lies in `dir`.
  explicit PlayedOrchestrator(const std::filesystem::path& dir)
      : endpoint_("ipc://" + (dir / "o.sock").string()), router_(bound(endpoint_)) {}

  const std::string& endpoint() const { return endpoint_; }
  net::RouterSocket& router() { return router_; }

  /// The next message of this kind; its bytes live until the next call. Null: none comes for a minute.
  const wire::WorkerMessage* next(wire::WorkerBody type) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (std::chrono::steady_clock::now() < end) {
      auto incoming = router_.receive();
      if (!incoming.is_ok()) return nullptr;
      if (!incoming->has_value()) {
        (void)router_.wait(std::chrono::milliseconds(20)).is_ok();
        continue;
      }
      last_ = std::move(**incoming);
      const auto* m = wire::GetWorkerMessage(last_.body.data());
      if (m->body_type() == type) return m;
    }
    return nullptr;
  }
  /// The registration that was accepted; its bytes live until next() is called.
  const wire::RegisterWorker* register_worker() {
    const auto* m = next(wire::WorkerBody::RegisterWorker);
    MOESTRO_CHECK(m != nullptr, "the worker registers");
    flatbuffers::FlatBufferBuilder b;
    send(message(b, wire::WorkerBody::Registered, wire::CreateRegistered(b, 7)));
    return m->body_as_RegisterWorker();
  }
  /// To the worker that was heard last.
  void send(const std::vector<std::byte>& bytes) {
    MOESTRO_CHECK(router_.send(last_.peer, bytes).is_ok(), "the worker is there");
  }
  /// A new sequence of two tokens, or of the first alone, in this KV block.
  void send_plan(uint64_t plan, int32_t first_token, int32_t parent = -1, size_t length = 2, uint32_t block = 0,
                 bool overtakes = false) {
    flatbuffers::FlatBufferBuilder b;
    const std::vector<uint32_t> blocks = {block};
    const auto sampling = wire::CreateSampling(b, 0, 0, 1, 0, 0, 0, 2);
    const auto sequence = wire::CreatePlanSequence(b, plan, 0, b.CreateVector(blocks), true, sampling);
    const std::array<wire::PlanToken, 2> tokens = {{{0, 0, first_token, parent}, {0, 1, 3, -1}}};
    const auto batch =
        wire::CreateMicroBatch(b, b.CreateVector(&sequence, 1), b.CreateVectorOfStructs(tokens.data(), length));
    const auto batches = b.CreateVector(&batch, 1);
    const auto model = b.CreateString("m");
    send(message(b, wire::WorkerBody::StepPlan, wire::CreateStepPlan(b, plan, 0, model, batches, 0, 0, 0, overtakes)));
  }

 private:
  static net::RouterSocket bound(const std::string& endpoint) {
    auto router = net::RouterSocket::bind(endpoint);
    MOESTRO_CHECK(router.is_ok(), router.status().message());
    return std::move(*router);
  }
  std::string endpoint_;
  net::RouterSocket router_;
  net::RouterSocket::Incoming last_;
};

}  // namespace moestro::worker::testing

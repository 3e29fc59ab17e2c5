#pragma once
// A store that serves a small pack on a thread of this process.

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "store/server/store_server.h"
#include "tests/store/small_pack.h"

namespace moestro::store {

inline constexpr std::chrono::milliseconds kLong{20000};  ///< to wait for what must come

class RunningStore {
 public:
  explicit RunningStore(StoreOptions options) {
    std::promise<Status> started;
    auto result = started.get_future();
    // Its sockets belong to this thread; the promise too, which may still be at it when its value is already here.
    thread_ = std::thread([this, options, started = std::move(started)]() mutable {
      auto server = StoreServer::start(options, stop_);
      if (server) endpoint_ = (*server)->endpoint();
      started.set_value(server ? Status::ok() : server.status());
      if (server) ended_ = (*server)->run(stop_);
    });
    status_ = result.get();
  }
  ~RunningStore() { stop(); }
  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  const Status& status() const { return status_; }
  const std::string& endpoint() const { return endpoint_; }

 private:
  std::atomic<bool> stop_{false};
  std::string endpoint_;
  Status status_, ended_;
  std::thread thread_;
};

inline StoreOptions store_options(const SmallPack& pack, uint64_t dram) {
  StoreOptions options;
  options.run_dir = pack.dir / "run";
  options.arena_dir = pack.arena.path();
  options.dram_bytes = dram;
  options.models = {{"tiny", pack.dir / "pack"}};
  options.poison_freed = true;
  return options;
}

}  // namespace moestro::store

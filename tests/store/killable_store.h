#pragma once
// moestro-store as a program that a test kills and starts again, with a small pack and the same arena each time.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/store/child_process.h"
#include "tests/store/small_pack.h"

namespace moestro::store {

class KillableStore : public ::testing::Test {
 protected:
  static constexpr std::chrono::milliseconds kLong{20000};

  std::unique_ptr<testing::ChildProcess> start_store(uint32_t slots, const char* log,
                                                     std::vector<std::string> more = {}) {
    std::vector<std::string> words{testing::program("moestro-store"),
                                   "--run-dir",
                                   (pack_.dir / "run").string(),
                                   "--arena-dir",
                                   arena().string(),
                                   "--dram",
                                   std::to_string(pack_.dram(slots)),
                                   "--model",
                                   "tiny=" + (pack_.dir / "pack").string(),
                                   "--poison-freed"};
    std::ranges::copy(more, std::back_inserter(words));
    auto store = std::make_unique<testing::ChildProcess>(words, (pack_.dir / log).string());
    EXPECT_TRUE(store->says("ready")) << store->output();
    return store;
  }
  void kill(std::unique_ptr<testing::ChildProcess>& store) {
    store->kill(SIGKILL);
    store->wait();
    store.reset();
  }
  void fetch(StoreClient& client, uint32_t blob) {
    ASSERT_TRUE(client.fetch(std::vector<uint32_t>{blob}, {}));
    const auto arrived = client.next_arrival(kLong);
    ASSERT_TRUE(arrived) << arrived.status().message();
    ASSERT_TRUE(pack_.holds(*arrived));
  }
  std::filesystem::path arena() const { return pack_.dir / "arena"; }
  std::string endpoint() const { return "ipc://" + (pack_.dir / "run" / "store.sock").string(); }
  Result<std::unique_ptr<StoreClient>> attach(std::chrono::milliseconds store_wait = kLong,
                                              const char* model = "tiny") {
    return StoreClient::attach({.endpoint = endpoint(), .model = model, .store_wait = store_wait});
  }

  SmallPack pack_;
};

}  // namespace moestro::store

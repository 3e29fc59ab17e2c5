// Experts on a CUDA device whose copies and kernels happen as late as they may: what kernels read is what was leased.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "kernels/cuda/emulated/functions.h"
#include "kernels/cuda/emulator/streams.h"
#include "tests/device/cuda_experts_driver.h"
#include "tests/device/failing_functions.h"
#include "tests/device/wait_by_asking.h"

namespace moestro::device::testing {
namespace {

namespace emulated = kernels::cuda::emulated;
using ::testing::AnyOf;
using ::testing::HasSubstr;

/// Longer than anything that is queried here: only a wait brings what lies on such a stream.
constexpr int32_t kOnlyByWaiting = INT32_MAX;

void expect_right(DriverOptions options, const MoestroCudaFunctions& functions = emulated::functions()) {
  for (options.seed = 1; options.seed <= 5; ++options.seed) {
    SCOPED_TRACE(options.seed);
    CudaExpertsDriver driver(emulated::functions(), options, emulated::make_streams_late);
    const Status made = driver.make(functions);
    ASSERT_TRUE(made.is_ok()) << made.message();
    const Status ran = driver.steps(60);
    ASSERT_TRUE(ran.is_ok()) << ran.message();
    const auto abandoned = driver.abandoned_step();
    ASSERT_TRUE(abandoned.is_ok()) << abandoned.message();
    ASSERT_TRUE(driver.steps(20).is_ok());
    EXPECT_EQ(driver.wrong(), 0) << "of " << driver.uses();
    EXPECT_GT(driver.uses(), 200u);
    EXPECT_GT(driver.experts().tier_counters().evictions, 50u);
    driver.let_go();
    EXPECT_EQ(driver.host().leased(), 0);
  }
}

TEST(CudaExperts, CopiesThatComeLate) {
  expect_right({.late_copies = 3});
}
TEST(CudaExperts, KernelsThatRunLate) {
  expect_right({.late_compute = kOnlyByWaiting});
}
TEST(CudaExperts, BothLate) {
  expect_right({.late_compute = kOnlyByWaiting, .late_copies = 4});
}
TEST(CudaExperts, BothLateAndOneChunkAnExpert) {
  expect_right({.chunk_bytes = 1 << 20, .late_compute = kOnlyByWaiting, .late_copies = 4});
}
TEST(CudaExperts, NothingInHostMemoryAtHand) {
  expect_right({.slots = 4, .late_host = 100, .late_compute = kOnlyByWaiting, .late_copies = 3});
}

TEST(CudaExperts, BothLateAndStagedWhereRegistrationIsRefused) {
  MoestroCudaFunctions cuda = emulated::functions();
  cuda.register_host = [](void*, uint64_t, int32_t) -> MoestroCudaResult { return 801; };
  expect_right({.late_compute = kOnlyByWaiting, .late_copies = 4}, cuda);
}

/// Host memory and slots are nobody's only then.
std::atomic<bool> stream_was_waited_for = false;
std::atomic<bool> let_go = false;

TEST(CudaExperts, LetGoOfInTheMiddleWaitsForWhatIsUnderWayFirst) {
  MoestroCudaFunctions cuda = emulated::functions();
  cuda.query_event = [](MoestroCudaEvent) -> MoestroCudaResult { return MOESTRO_CUDA_NOT_READY; };
  cuda.wait_event = [](MoestroCudaEvent) -> MoestroCudaResult {
    while (!let_go) std::this_thread::yield();
    return MOESTRO_CUDA_NOT_READY;
  };
  cuda.wait_stream = [](MoestroCudaStream stream) {
    stream_was_waited_for = true;
    return emulated::functions().wait_stream(stream);
  };
  stream_was_waited_for = let_go = false;
  int released = 0;
  CudaExpertsDriver driver(emulated::functions(), {.late_host = 0, .late_copies = kOnlyByWaiting},
                           emulated::make_streams_late);
  ASSERT_TRUE(driver.make(cuda).is_ok());
  DeviceExperts& experts = driver.experts();
  experts.begin_step(PlanId(1), false);
  experts.need({MoeLayerId(0), std::vector<store::Need>{{0}, {1}}});
  EXPECT_EQ(driver.host().leased(), 2);
  driver.host().on_release = [&] {
    EXPECT_TRUE(stream_was_waited_for);
    ++released;
  };
  let_go = true;
  driver.let_go();
  EXPECT_EQ(released, 2);
}

/// Nothing comes while it is not open.
std::atomic<bool> gate_open{true};
std::atomic<int> copies_queued{0};
MoestroCudaResult query_at_gate(MoestroCudaEvent event) {
  return gate_open ? emulated::functions().query_event(event) : MOESTRO_CUDA_NOT_READY;
}

TEST(CudaExperts, HostMemoryOfWhatIsUnderWayIsKeptWhenTheRestIsGivenBack) {
  MoestroCudaFunctions cuda = emulated::functions();
  cuda.query_event = query_at_gate;
  cuda.wait_event = wait_by_asking<query_at_gate>;
  cuda.copy_in = [](void* to, const void* from, uint64_t bytes, MoestroCudaStream stream) {
    ++copies_queued;
    return emulated::functions().copy_in(to, from, bytes, stream);
  };
  gate_open = false, copies_queued = 0;
  CudaExpertsDriver driver(emulated::functions(), {.chunk_bytes = 4096, .late_host = 0, .late_copies = 3},
                           emulated::make_streams_late);
  ASSERT_TRUE(driver.make(cuda).is_ok());
  DeviceExperts& experts = driver.experts();
  experts.begin_step(PlanId(1), false);
  prediction::Forecast forecast(4, 8);
  for (size_t e = 0; e < 4; ++e) forecast.row(1)[e] = 0.9F;
  experts.forecast(-1, forecast);
  while (copies_queued < 2) std::this_thread::yield();
  EXPECT_EQ(driver.host().leased(), 4);
  driver.host().set_late(100);
  for (int i = 0; i < 2; ++i)
    experts.need({MoeLayerId(0), std::vector<store::Need>{{0}}});  // has to be fetched: nothing may be held idle
  EXPECT_EQ(driver.host().leased(), 2) << "of the two under way";
  gate_open = true;
  EXPECT_TRUE(experts.fetch(std::vector<uint32_t>{0}, {PlanId(1), MoeLayerId(0)}).is_ok());
  EXPECT_TRUE(experts.next_arrival(std::chrono::seconds(60)).is_ok());
  driver.host().set_late(0);
  experts.need({MoeLayerId(1), std::vector<store::Need>{{8}, {9}}});
  for (const uint32_t blob : {8u, 9u}) {
    std::vector<store::Lease> leases;
    leases.push_back(*experts.try_pin(blob));
    ASSERT_TRUE(driver.read(leases).is_ok());
  }
  EXPECT_EQ(driver.wrong(), 0);
}

/// Routes until the device is gone, as a worker does; then everything has to be let go of.
void expect_fall(const FailingFunction& function, int calls) {
  SCOPED_TRACE(std::string(function.name) + " fails behind " + std::to_string(calls) + " calls");
  MoestroCudaFunctions cuda = emulated::functions();
  function.install(cuda, calls);
  CudaExpertsDriver driver(emulated::functions(), {.late_host = 10, .late_compute = 3, .late_copies = 3},
                           emulated::make_streams_late);
  const Status made = driver.make(cuda);
  const Status ran = made.is_ok() ? driver.steps(8) : made;
  if (made.is_ok() && !ran.is_ok()) {
    EXPECT_THAT(ran.code(), AnyOf(Code::kUnavailable, Code::kIo)) << ran.message();
    EXPECT_EQ(ran.message(),
              "the device cuda:0 has failed: " + std::string(function.name) + ": an emulated error; the worker ends");
    EXPECT_EQ(driver.experts().check().code(), Code::kUnavailable);
    EXPECT_EQ(driver.experts().check().message(), ran.message());
    EXPECT_EQ(driver.experts().launched().message(), ran.message()) << "the first reason stays";
    driver.experts().begin_step(PlanId(99), false);
    std::vector<store::Lease> leases;
    while (leases.empty() && driver.lease(1, leases).is_ok()) {
    }
    EXPECT_TRUE(leases.empty()) << "nothing is leased on a device that is gone";
    driver.experts().cancel_fetches();
  } else if (!made.is_ok()) {
    EXPECT_THAT(made.code(), AnyOf(Code::kUnavailable, Code::kExhausted));
    EXPECT_THAT(made.message(), HasSubstr("the device cuda:0: " + std::string(function.name) + ": an emulated error"));
  } else {
    EXPECT_EQ(driver.wrong(), 0);
  }
  driver.let_go();
  EXPECT_EQ(driver.host().leased(), 0);
}

TEST(CudaExperts, EveryCallMayFail) {
  for (const FailingFunction& function : kFailingFunctions)
    for (const int calls : {0, 1, 2, 3, 10, 70}) expect_fall(function, calls);
}

TEST(CudaExperts, ADeviceThatFallsOffEndsAllThatWorksWithIt) {
  for (const char* name : {"record_event", "query_event", "wait_event", "elapsed", "stream_waits", "copy_in", "fill"}) {
    const auto function = std::ranges::find_if(
        kFailingFunctions, [&](const FailingFunction& f) { return std::string_view(f.name) == name; });
    MoestroCudaFunctions cuda = emulated::functions();
    function->install(cuda, 5);
    CudaExpertsDriver driver(emulated::functions(), {.late_compute = 3, .late_copies = 3}, emulated::make_streams_late);
    ASSERT_TRUE(driver.make(cuda).is_ok());
    EXPECT_FALSE(driver.steps(100).is_ok()) << name;
  }
}

TEST(CudaExperts, MemoryThatHoldsNoExpertIsRefusedWithWhatOneTakes) {
  CudaExpertsDriver driver(emulated::functions(), {.slots = 0, .bytes = 4096}, emulated::make_streams_late);
  const Status made = driver.make(emulated::functions());
  EXPECT_EQ(made.code(), Code::kInvalidArgument);
  EXPECT_THAT(made.message(), HasSubstr("left for experts hold none of 'plain', one has 4.00 KiB"));
}

}  // namespace
}  // namespace moestro::device::testing

// In which order a step of many micro-batches is queued on a CUDA device, and when the host waits for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tests/cuda/cuda_under_test.h"
#include "tests/device/device_bench.h"
#include "tests/device/played_steps.h"
#ifndef MOESTRO_CUDA_PLUGIN
#include "kernels/cuda/emulator/streams.h"
#endif

namespace moestro::device::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CudaGroupsOrder : public kernels::test::CudaTest {};

/// What the engine's thread has done, in order: R: queued a router, E: an expert; W: waited for the device.
std::string queued_and_waited;

const MoestroCudaFunctions& ordered_functions() {
  static const MoestroCudaFunctions& real = kernels::test::functions_under_test();
  static thread_local bool is_engine = false;  // the link's thread calls the same functions
  static const MoestroCudaFunctions table = [] {
    MoestroCudaFunctions f = real;
    f.ops.route = [](const auto* arguments, MoestroCudaStream stream) {
      is_engine = true, queued_and_waited += 'R';
      return real.ops.route(arguments, stream);
    };
    f.ops.experts = [](const auto* arguments, MoestroCudaStream stream) {
      queued_and_waited += 'E';
      return real.ops.experts(arguments, stream);
    };
    f.wait_event = [](MoestroCudaEvent event) {
      if (is_engine && real.query_event(event) == MOESTRO_CUDA_NOT_READY) queued_and_waited += 'W';
      return real.wait_event(event);
    };
    return f;
  }();
  return table;
}

/// The host waits when there is nothing to queue, not for room in which to tell kernels of their rows.
TEST_F(CudaGroupsOrder, AllMicroBatchesAreQueuedBeforeTheHostWaits) {
  DeviceBenchOptions options{.slots = 1 << 20, .cuda = &ordered_functions()};
  options.engine.engine.context_max = kContext;
  options.engine.engine.schedule = engine::ScheduleKind::kExpertPipeline;
  options.engine.engine.cut.count = 8;
#ifndef MOESTRO_CUDA_PLUGIN
  kernels::cuda::emulated::make_streams_late(3);
#endif
  DeviceBench device(engine::testing::any_fixture(), options);
#ifndef MOESTRO_CUDA_PLUGIN
  kernels::cuda::emulated::make_streams_late(0);
#endif
  const int64_t layers = device.bench().engine().spec().moe_layers();
  for (TokenId step = 0; step < 6; ++step) {
    for (TokenId id = 1; id <= 24; ++id)
      device.bench().add(static_cast<uint64_t>(id), {(5 * id + step) % 50}).sample = true;
    queued_and_waited.clear();
    const auto outcome = device.bench().run();
    ASSERT_TRUE(outcome.is_ok()) << outcome.status().message();
    const std::string& order = queued_and_waited;
    ASSERT_EQ(std::ranges::count(order, 'R'), 8 * layers) << order;
    if (step == 0) continue;  // experts come, and memory grows
    SCOPED_TRACE(order);
    EXPECT_GT(std::ranges::count(order, 'E'), 5 * layers) << "more than a few experts";
    if (kernels::test::kEmulated) EXPECT_THAT(order, HasSubstr("W")) << "the streams are late";
    for (const char* halted : {"RWR", "RWWR", "EWE", "EWWE"}) EXPECT_THAT(order, Not(HasSubstr(halted)));
  }
}

}  // namespace
}  // namespace moestro::device::testing

#pragma once
// Streams, events and graphs of the emulation.
//
// A stream runs queued work at once, or, if it is a late stream, as late as a device may: when the host waits for it,
// for an event after the work, or for another stream that waits for it. So code that reads a late stream's output too
// early, or overwrites its input too early, fails: what it should have waited for has certainly not happened.
//
// Any thread may call this. A late stream's work runs on the thread that waits.

#include <cstdint>
#include <functional>

#include "kernels/plugin/plugin_abi.h"

namespace moestro::kernels::cuda::emulated {

/// Streams made from now on are late: an event is reached when it is waited for, or at its `queries`th query. 0, the
/// default: work runs at once.
void make_streams_late(int32_t queries);

/// Whether work for the stream is kept instead of run: it is late, or this thread captures on it.
bool keeps(MoestroCudaStream stream);
void keep(MoestroCudaStream stream, std::function<void()> work);
/// Runs all queued work of all streams, as a device does before it frees memory.
void run_all();
/// Whether this thread captures on the stream.
bool captures(MoestroCudaStream stream);
/// For a call that cannot be in a graph: 0, or, while this thread captures, a refusal. The capture is then void, as in
/// CUDA.
MoestroCudaResult refused_in_capture();
/// Launches so far: of kernels outside graphs, and of graphs.
uint64_t launches();
void count_launch(MoestroCudaStream stream);

/// The device that this thread uses from now on. A thread that has never chosen is on none that another has.
void use_device(int32_t index);
/// For a launch on a stream: 0, or, if the stream was made by a thread that used another device than this one does,
/// CUDA's refusal.
MoestroCudaResult refused_on_device(MoestroCudaStream stream);

MoestroCudaResult make_stream(int32_t urgent, MoestroCudaStream* stream);
MoestroCudaResult end_stream(MoestroCudaStream stream);
MoestroCudaResult wait_stream(MoestroCudaStream stream);
MoestroCudaResult make_event(int32_t kind, MoestroCudaEvent* event);
MoestroCudaResult end_event(MoestroCudaEvent event);
MoestroCudaResult record_event(MoestroCudaEvent event, MoestroCudaStream stream);
MoestroCudaResult query_event(MoestroCudaEvent event);
MoestroCudaResult wait_event(MoestroCudaEvent event);
MoestroCudaResult elapsed(float* ms, MoestroCudaEvent begin, MoestroCudaEvent end);
MoestroCudaResult stream_waits(MoestroCudaStream stream, MoestroCudaEvent event);
MoestroCudaResult begin_capture(MoestroCudaStream stream);
MoestroCudaResult end_capture(MoestroCudaStream stream, MoestroCudaGraph* graph);
MoestroCudaResult launch_graph(MoestroCudaGraph graph, MoestroCudaStream stream);
MoestroCudaResult end_graph(MoestroCudaGraph graph);

/// cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated.
inline constexpr MoestroCudaResult kErrorWhileCapturing = 900, kErrorCaptureIsVoid = 901;
/// cudaErrorInvalidResourceHandle.
inline constexpr MoestroCudaResult kErrorOtherDevice = 400;

}  // namespace moestro::kernels::cuda::emulated

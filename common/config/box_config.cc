#include "common/config/box_config.h"

namespace moestro::config {
namespace {

void add_model(Schema& schema, BoxConfig::Model& c) {
  schema.section("model", "The model that is served.");
  schema.add(
      {.key = "model.pack", .flag = "--model", .field = &c.pack, .help = "directory made by `moestro pack`"});
  schema.add(
      {.key = "model.name",
       .flag = "--name",
       .field = &c.name,
       .help = "name in the HTTP interface and of the run directory; empty: the pack directory's name"});
}

void add_store(Schema& schema, BoxConfig::Store& c) {
  schema.section("store", "The expert store: all weights, in memory and on disk.");
  schema.add({.key = "store.dram",
              .flag = "--dram",
              .field = &c.dram,
              .min = 4096,
              .help =
                  "host memory for weights alone, the arena: KV caches and scratch of the workers come on top, and a "
                  "sum that does not fit is refused; auto: what the pack needs, at most what is free; what does "
                  "not fit is read from disk when it is needed"});
  schema.add({.key = "store.arena_dir",
              .flag = "--arena-dir",
              .field = &c.arena_dir,
              .help = "directory of the arena's files, on a tmpfs; empty: a tmpfs of its own "
                      "where it may be mounted, else "
                      "`/dev/shm`, else the run directory"});
  schema.add({.key = "store.payload_dir",
              .flag = "--payload-dir",
              .field = &c.payload_dir,
              .help =
                  "directory for the weights alone: a hugetlbfs (where it has too few pages, the arena's directory is "
                  "taken), or a volume that workers mount read-only; `memfd`: memory without a name, which a restarted "
                  "store cannot take over; empty: in the arena's directory"});
  schema.add(
      {.key = "store.numa",
       .flag = "--numa",
       .field = &c.numa,
       .help = "on which NUMA nodes the weights lie, in pieces of 2 MiB in turn: a list as `0` or `0,2-3`; `off`: "
               "where the store runs, or as `numactl` says; auto: on those that "
               "all workers keep to, else on all, and, where `numactl` says something or there is one node, as off"});
  schema.add({.key = "store.io",
              .flag = "--io",
              .field = &c.io,
              .choices = {"auto", "uring", "pread"},
              .help = "how the pack is read; auto: io_uring where the kernel allows it"});
  schema.add({.key = "store.shares",
              .flag = "--shares",
              .field = &c.shares,
              .help = "what of the arena each model is guaranteed and may have at most, dense weights included: "
                      "`big=4GiB..12GiB,small=..2GiB,chat=1GiB`; a blob of n models counts 1/n to each; what is not "
                      "guaranteed goes to whoever uses it"});
  schema.add({.key = "store.warm_start",
              .flag = "--warm-start",
              .field = &c.warm_start,
              .choices = {"on", "off"},
              .help = "read what was in memory when the store was last shut down, the hottest first, while serving; "
                      "off: read what is asked for alone"});
  schema.add({.key = "store.policy",
              .flag = "--policy",
              .field = &c.policy,
              .choices = {"lfru", "lfu", "lru", "random"},
              .help = "which expert leaves memory when another needs its place; lfru: the one used least often of "
                      "late; lfu: least often, with a long memory; "
                      "lru: longest not used; random"});
  schema.add({.key = "store.read_chunk",
              .flag = "--read-chunk",
              .field = &c.read_chunk,
              .min = 64 << 10,
              .max = 16 << 20,
              .help = "bytes of one read, a multiple of 4KiB; auto: measured at start on the packs' own files"});
  schema.add(
      {.key = "store.read_depth",
       .flag = "--read-depth",
       .field = &c.read_depth,
       .min = 1,
       .max = 256,
       .help =
           "reads of one drive under way at once; auto: measured at start, and up to 32 where all are of one expert"});
  schema.add({.key = "store.scrub",
              .flag = "--scrub",
              .field = &c.scrub,
              .min = 0,
              .help = "bytes a second of what is in memory that are compared with their checksums while nothing is to "
                      "be read; 0: none"});
  schema.add({.key = "store.inject_read_faults",
              .flag = "--inject-read-faults",
              .field = &c.inject_read_faults,
              .help = "for tests: how many reads in a thousand go wrong, as `eio=5,short=50,flip=1,seed=7`, and how "
                      "many milliseconds each takes longer, `delay=20`"});
  schema.add({.key = "store.poison_freed",
              .flag = "--poison-freed",
              .field = &c.poison_freed,
              .help = "fill freed ranges with NaN, to find use after free; slow"});
}

void add_workers(Schema& schema, BoxConfig::Workers& c) {
  schema.section("workers", "The processes that compute.");
  schema.add({.key = "workers.count",
              .flag = "--workers",
              .field = &c.count,
              .min = 1,
              .max = 64,
              .help = "how many"});
  schema.add({.key = "workers.device",
              .flag = "--device",
              .field = &c.device,
              .help = "what they compute on: cpu; cuda[:INDEX][,vram=SIZE]: a GPU, of whose memory each takes SIZE at "
                      "most (without: what is free; without INDEX several "
                      "workers are spread over the machine's), or the reason why it cannot be (docs/operations.md); "
                      "emulated:vram=SIZE,link=RATE[,latency=T][,compute=T]: the CPU, but "
                      "each expert must first be copied into a memory of that size over a link of that speed (compute: "
                      "the least time of one expert and of one attention)"});
  schema.add({.key = "workers.cache",
              .flag = "--cache",
              .field = &c.cache,
              .help = "on a device with a memory of its own: which expert makes room for another; auto: as the policy "
                      "says that has lately missed least"});
  schema.add({.key = "workers.predict",
              .flag = "--predict",
              .field = &c.predict,
              .help = "on a device with a memory of its own: which experts are copied before a layer wants them; auto: "
                      "as a mixture of all that is known of the request says, calibrated as it runs; none: none"});
  schema.add(
      {.key = "workers.cuda_graphs",
       .flag = "--cuda-graphs",
       .field = &c.cuda_graphs,
       .choices = {"on", "off"},
       .help = "on a GPU: a layer of a step that decodes is one launch of a graph, once the like of it has been seen; "
               "off: every kernel is launched by itself, as for compute-sanitizer; the results are the same"});
  schema.add({.key = "workers.threads",
              .flag = "--threads",
              .field = &c.threads,
              .min = 1,
              .max = 1024,
              .help = "threads of each; auto: the machine's cores divided by the workers"});
  schema.add(
      {.key = "workers.pin_threads",
       .flag = "--pin-threads",
       .field = &c.pin_threads,
       .choices = {"auto", "on", "off"},
       .help = "each compute thread on a core of its own, worker-K on the cores after those of worker-0 to "
               "worker-(K-1); auto: where the "
               "CPUs are of several NUMA nodes and there is a core for each thread; on: refused where there is not"});
  schema.add({.key = "workers.numa_node",
              .flag = "--numa-node",
              .field = &c.numa_node,
              .min = 0,
              .max = 1023,
              .help = "run on the CPUs of this NUMA node alone; KV cache and scratch then lie in its memory; auto: on "
                      "all, or, on a GPU, on that which is near it"});
  schema.add({.key = "workers.kv_tokens",
              .flag = "--kv-tokens",
              .field = &c.kv_tokens,
              .min = 16,
              .max = int64_t{1} << 31,
              .help = "tokens that the KV cache of each holds, over all sequences"});
  schema.add({.key = "workers.kv_host_tokens",
              .flag = "--kv-host-tokens",
              .field = &c.kv_host_tokens,
              .min = 0,
              .max = int64_t{1} << 31,
              .help = "on a GPU: tokens that each holds in host memory beside its KV cache; what makes room there is "
                      "copied back when it is wanted again, instead of being computed again; 0: none"});
  schema.add({.key = "workers.kv_dtype",
              .flag = "--kv-dtype",
              .field = &c.kv_dtype,
              .choices = {"f32", "bf16", "f16", "int8"},
              .help = "what keys and values are stored in; f32, the default, rounds nothing, so answers are the "
                      "model's own; bf16 and f16 (nothing beyond 65504) "
                      "take half the memory, int8 (a scale for each token and head) about a quarter"});
  schema.add({.key = "workers.kv_sinks",
              .flag = "--kv-sinks",
              .field = &c.kv_sinks,
              .min = 0,
              .max = int64_t{1} << 24,
              .help = "with kv_window: each token also sees this many tokens from the beginning of its sequence "
                      "(attention sinks); 4 is usual"});
  schema.add({.key = "workers.kv_window",
              .flag = "--kv-window",
              .field = &c.kv_window,
              .min = 0,
              .max = int64_t{1} << 24,
              .help = "each token sees this many tokens, itself and those before it; sequences may then be longer than "
                      "the model's context; 0: all"});
  schema.add({.key = "workers.context",
              .flag = "--context",
              .field = &c.context,
              .min = 16,
              .max = int64_t{1} << 24,
              .help = "longest sequence; auto, or more than it allows: what the model allows"});
  schema.add({.key = "workers.store_wait",
              .flag = "--store-wait",
              .field = &c.store_wait,
              .min = 0,
              .max = 24 * 3600'000,
              .help = "how long an expert that is not in memory waits for the successor of a store that was killed; "
                      "then the requests that need it fail"});
  schema.add({.key = "workers.reserve",
              .flag = "--reserve",
              .field = &c.reserve,
              .min = 1,
              .max = 1 << 20,
              .help = "experts that each may always hold in use at once"});
  schema.add({.key = "workers.precision",
              .flag = "--precision",
              .field = &c.precision,
              .choices = {"", "f32", "bf16", "bf16-12bit", "f16", "int8", "int4"},
              .help = "which of the pack's expert precisions is used; empty: its first"});
  schema.add({.key = "workers.deterministic",
              .flag = "--deterministic",
              .field = &c.deterministic,
              .help = "bitwise the same results whatever else is in the batch: activations stay f32 and every sum has "
                      "one order; without it products may round activations to bf16 or 8 bits, and few rows are summed "
                      "in another order than many, which is faster"});
  schema.add({.key = "workers.capacity_factor",
              .flag = "--capacity-factor",
              .field = &c.capacity_factor,
              .min = 0,
              .max = 1 << 20,
              .help = "for Switch-style models: an expert takes at most this times its even share of a step's tokens, "
                      "ceil(factor * tokens * top_k / experts), the others skip it; auto: no token is dropped; "
                      "excludes `workers.deterministic`"});
  schema.add({.key = "workers.trace",
              .flag = "--trace",
              .field = &c.trace,
              .help = "write the routes of every token here (JSON Lines); several workers: each its own "
                      "file, with its name inserted"});
  schema.add({.key = "workers.timeline",
              .flag = "--timeline",
              .field = &c.timeline,
              .help = "write what every lane did when (Chrome trace format); several workers: as for trace"});
}

void add_orchestrator(Schema& schema, BoxConfig::Orchestrator& c) {
  schema.section("orchestrator", "The HTTP interface and the scheduler.");
  schema.add({.key = "orchestrator.http",
              .flag = "--http",
              .field = &c.http,
              .help = "HOST:PORT to serve on; port 0: a free one"});
  schema.add(
      {.key = "orchestrator.step_tokens",
       .flag = "--step-tokens",
       .field = &c.step_tokens,
       .min = 1,
       .max = 1 << 20,
       .help =
           "most tokens of one step; smaller answers running requests sooner, larger reads prompts faster"});
  schema.add({.key = "orchestrator.steps_in_flight",
              .flag = "--steps-in-flight",
              .field = &c.steps_in_flight,
              .min = 1,
              .max = 2,
              .help = "steps that each worker has at once; 2: the next is sent before the result of the one before it, "
                      "so that no worker waits for the orchestrator; "
                      "1: it is not"});
  schema.add({.key = "orchestrator.tpot_target",
              .flag = "--tpot-target",
              .field = &c.tpot_target,
              .min = 0,
              .max = 600'000,
              .help = "time per output token that running requests are to keep, as `80ms`: prompts are read in smaller "
                      "pieces and fewer requests run at once where "
                      "measured steps say that it is at risk; 0ms: no target, step_tokens alone bounds a step"});
  schema.add({.key = "orchestrator.interactive_weight",
              .flag = "--interactive-weight",
              .field = &c.interactive_weight,
              .min = 1,
              .max = 1000,
              .help = "tokens and places of other requests for one of batches, while both want more than there is"});
  schema.add(
      {.key = "orchestrator.batch_aging",
       .flag = "--batch-aging",
       .field = &c.batch_aging,
       .min = 0,
       .max = 24 * 3600'000,
       .help = "a batch's line that has waited so long without getting any further counts as other requests do"});
  schema.add({.key = "orchestrator.prefix_cache",
              .flag = "--no-prefix-cache",
              .field = &c.prefix_cache,
              .help = "requests that begin alike share the keys and values of what they have in common"});
  schema.add({.key = "orchestrator.share_prefixes",
              .flag = "--share-prefixes",
              .field = &c.share_prefixes,
              .help = "also those of API keys of different projects, which can then tell by time and `cached_tokens` "
                      "what others have sent"});
  schema.add({.key = "orchestrator.lenient",
              .flag = "--lenient",
              .field = &c.lenient,
              .help = "fields of completions that are not known here are ignored, and the header X-Moestro-Ignored "
                      "names them; else they are refused by name"});
  schema.add({.key = "orchestrator.queue_max",
              .flag = "--queue-max",
              .field = &c.queue_max,
              .min = 1,
              .max = 1 << 20,
              .help = "requests that may wait; more are refused with 429"});
  schema.add({.key = "orchestrator.worker_wait",
              .flag = "--worker-wait",
              .field = &c.worker_wait,
              .min = 1000,
              .max = 24 * 3600'000,
              .help = "how long requests wait while no worker is there; then they fail with 503"});
  schema.add({.key = "orchestrator.api_keys",
              .flag = "--api-keys",
              .field = &c.api_keys,
              .help = "file of the keys that requests must bring, as hashes (`sha256:HEX NAME [concurrency=N] "
                      "[project=NAME] [admin]`, one a line); empty: none are wanted"});
  schema.add({.key = "orchestrator.cors",
              .flag = "--cors",
              .field = &c.cors,
              .help = "origins whose pages in browsers may call the API, with commas between them, or *; empty: none"});
  schema.add({.key = "orchestrator.tls_cert",
              .flag = "--tls-cert",
              .field = &c.tls_cert,
              .help = "PEM file of the server's certificate, with its chain behind it; with tls_key: https; empty: "
                      "http. Read again when it is replaced"});
  schema.add({.key = "orchestrator.tls_key",
              .flag = "--tls-key",
              .field = &c.tls_key,
              .help = "PEM file of the certificate's private key, without a passphrase"});
  schema.add({.key = "orchestrator.reader_wait",
              .flag = "--reader-wait",
              .field = &c.reader_wait,
              .min = 1000,
              .max = 24 * 3600'000,
              .help = "a client that takes none of its answer for so long is cut off"});
  schema.add({.key = "orchestrator.state",
              .flag = "--state",
              .field = &c.state,
              .help = "where files, batches and responses are kept: `sqlite:PATH`, a file, with a folder PATH.files "
                      "beside it; or `redis://HOST:PORT/DB`, which several "
                      "orchestrators share (docs/scaling-out.md). Default: `RUN_DIR/state/batches.db`; of `moestro up` "
                      "without `--run-dir` "
                      "`$XDG_STATE_HOME/moestro/NAME/batches.db` (`~/.local/state`)"});
  schema.add({.key = "orchestrator.file_max",
              .flag = "--file-max",
              .field = &c.file_max,
              .min = 1,
              .max = int64_t{64} << 30,
              .help = "largest file that may be uploaded"});
  schema.add({.key = "orchestrator.responses_kept",
              .flag = "--responses-kept",
              .field = &c.responses_kept,
              .min = 0,
              .max = int64_t{64} << 30,
              .help = "bytes of responses of `/v1/responses` that are kept, for 30 days; the oldest are forgotten; 0: "
                      "none are kept"});
  schema.add({.key = "orchestrator.batch_lines",
              .flag = "--batch-lines",
              .field = &c.batch_lines,
              .min = 1,
              .max = 4096,
              .help = "lines of batches that run at once"});
  schema.add({.key = "orchestrator.line_lease",
              .flag = "--line-lease",
              .field = &c.line_lease,
              .min = 500,
              .max = 3'600'000,
              .help = "an orchestrator that shares batches in Redis and says nothing for so long is taken for dead: "
                      "others get its lines"});
}

void add_history(Schema& schema, BoxConfig::History& c) {
  schema.section("history",
                 "What past requests have used, from which the `eamc` and `auto` predictors tell what comes next.");
  schema.add({.key = "history.capacity",
              .flag = "--history-capacity",
              .field = &c.capacity,
              .min = 0,
              .max = 65536,
              .help = "past requests whose activations are kept, prompts and answers apart; when they are so many, a "
                      "new one takes the place of the most similar; "
                      "0: none are kept"});
  schema.add(
      {.key = "history.checkpoint",
       .flag = "--history-checkpoint",
       .field = &c.checkpoint,
       .min = 1000,
       .max = 24 * 3600'000,
       .help = "time between checkpoints of it in the state, while something changes; there is one at the end, too"});
}

void add_run(Schema& schema, BoxConfig::Run& c) {
  schema.section("run", "The run itself.");
  schema.add({.key = "run.dir",
              .flag = "--run-dir",
              .field = &c.dir,
              .help = "sockets, locks and logs; only its owner may enter it; empty: "
                      "`$XDG_RUNTIME_DIR/moestro/NAME` or `/tmp/moestro-UID/NAME`"});
  schema.add({.key = "run.group",
              .flag = "--group",
              .field = &c.group,
              .help = "name or number of a group whose members may reach sockets and arena too: for programs that run "
                      "as users of their own, in containers; "
                      "empty: this user alone"});
  schema.add({.key = "run.log_level",
              .flag = "--log-level",
              .field = &c.log_level,
              .choices = {"trace", "debug", "info", "warn", "error", "off"},
              .help = "of the three programs"});
  schema.add({.key = "run.log_format",
              .flag = "--log-format",
              .field = &c.log_format,
              .choices = {"text", "json"},
              .help = "of their logs: lines for people, or an object a line with `time`, `level`, `program`, `message` "
                      "and `request_id`"});
  schema.add({.key = "run.fault_points",
              .flag = "--fault-points",
              .field = &c.fault_points,
              .help = "for tests: store and workers kill or stop themselves when they come by, as "
                      "`loading=kill:3,leased=stop:1`"});
  schema.add(
      {.key = "run.drain",
       .flag = "--drain",
       .field = &c.drain,
       .min = 0,
       .max = 24 * 3600'000,
       .help = "how long requests in flight may take to end after Ctrl-C before the programs are killed"});
}

}  // namespace

Schema box_schema(BoxConfig& config) {
  Schema schema;
  add_model(schema, config.model);
  add_store(schema, config.store);
  add_workers(schema, config.workers);
  add_orchestrator(schema, config.orchestrator);
  add_history(schema, config.history);
  add_run(schema, config.run);
  return schema;
}

}  // namespace moestro::config

/* The runtime inside a compiled library: threads, memory, checks of a call. It is compiled once with the compiler and
   linked into every library; all its symbols are hidden, so that several libraries can be loaded side by side. */
#define _GNU_SOURCE
#include "runtime/aot.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <xmmintrin.h>
#endif

#define HUGE_PAGE ((size_t)2 << 20)
#define MAX_THREADS 1024

/* ---- memory: 64-byte aligned, huge pages from 2 MiB on */

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

static void* take_memory(size_t bytes) {
  if (bytes < HUGE_PAGE) return aligned_alloc(64, round_up(bytes ? bytes : 1, 64));
  void* p = aligned_alloc(HUGE_PAGE, round_up(bytes, HUGE_PAGE));
  if (p) madvise(p, round_up(bytes, HUGE_PAGE), MADV_HUGEPAGE);
  return p;
}

/* ---- what the processor can do */

#if defined(__x86_64__)
static const struct {
  const char* name;
  unsigned leaf, subleaf;
  int reg; /* 0 eax, 1 ebx, 2 ecx, 3 edx */
  int bit;
  unsigned state; /* bits of XCR0 that the system has to save */
} kFeatures[] = {
#define FEATURE(name, leaf, subleaf, reg, bit, state) {name, leaf, subleaf, reg, bit, state},
#include "runtime/aot_features.def"
#undef FEATURE
};

static unsigned long long saved_state(void) {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) return 0;
  __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (unsigned long long)d << 32 | a;
}

static int has_feature(const char* name, size_t length) {
  for (size_t i = 0; i < sizeof kFeatures / sizeof *kFeatures; ++i) {
    if (strlen(kFeatures[i].name) != length || memcmp(kFeatures[i].name, name, length)) continue;
    unsigned r[4];
    if (!__get_cpuid_count(kFeatures[i].leaf, kFeatures[i].subleaf, &r[0], &r[1], &r[2], &r[3])) return 0;
    return (r[kFeatures[i].reg] >> kFeatures[i].bit & 1) && (saved_state() & kFeatures[i].state) == kFeatures[i].state;
  }
  return 0;
}
#else
static int has_feature(const char* name, size_t length) { return (void)name, (void)length, 1; }
#endif

static int cpu_supported(const char* features) {
  static atomic_int known; /* 0: not asked yet, 1: yes, 2: no */
  int state = atomic_load(&known);
  if (state) return state == 1;
  state = 1;
  for (const char* p = features; *p;) {
    const size_t length = strcspn(p, ",");
    if (!has_feature(p, length)) state = 2;
#if defined(__x86_64__)
    /* Linux keeps the tiles of a process that has asked for them. */
    if (state == 1 && length == 8 && !memcmp(p, "amx-tile", 8) && syscall(SYS_arch_prctl, 0x1023, 18) != 0) state = 2;
#endif
    p += length + (p[length] == ',');
  }
  atomic_store(&known, state);
  return state == 1;
}

static int usable_cores(void) {
  int n = 1;
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) n = CPU_COUNT(&set);
  double quota = 0, period = 0;
  FILE* f = fopen("/sys/fs/cgroup/cpu.max", "re");
  if (f) {
    if (fscanf(f, "%lf %lf", &quota, &period) != 2) quota = 0;
    fclose(f);
  }
  if (quota > 0 && period > 0 && quota / period < n) n = (int)(quota / period + 0.999);
  return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n;
}

/* ---- floating-point mode: denormals are flushed while kernels run, the caller's mode comes back */

static unsigned long long set_mode(int keep_denormals) {
#if defined(__x86_64__)
  const unsigned before = _mm_getcsr();
  if (!keep_denormals) _mm_setcsr(before | 0x8040);
  return before;
#elif defined(__aarch64__)
  unsigned long long before;
  __asm__ volatile("mrs %0, fpcr" : "=r"(before));
  if (!keep_denormals) __asm__ volatile("msr fpcr, %0" : : "r"(before | 1ull << 24));
  return before;
#else
  return (void)keep_denormals, 0;
#endif
}
static void restore_mode(unsigned long long before) {
#if defined(__x86_64__)
  _mm_setcsr((unsigned)before);
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(before));
#else
  (void)before;
#endif
}

/* ---- threads: tasks from one counter; the caller takes part; workers spin for 50 us, then sleep. A region never waits
   for a worker that has not joined it. A call that finds the pool busy runs alone. */

typedef void (*Task)(void* context, int64_t index, int worker);

/* region: bit 0 open, bits 1..15 how many workers are inside, bits 16.. the region's number */
enum { kOpen = 1, kOne = 2, kInside = 0xfffe };
#define REGION_NUMBER(r) ((r) >> 16)

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t wake;
  pthread_t thread[MAX_THREADS];
  int threads; /* workers besides callers; changed by whoever holds `busy` */
  atomic_int busy, stop, sleepers, limit;
  Task task;
  void* context;
  int64_t tasks;
  _Alignas(64) atomic_llong next;
  _Alignas(64) atomic_ullong region;
} pool = {.mutex = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static atomic_int default_threads; /* 0: not chosen */

static void pause_briefly(void) {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void take_tasks(int worker) {
  for (long long i; (i = atomic_fetch_add_explicit(&pool.next, 1, memory_order_relaxed)) < pool.tasks;)
    pool.task(pool.context, i, worker);
}

static long long now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void* work(void* argument) {
  const int worker = (int)(intptr_t)argument;
  unsigned long long seen = 0;
  for (;;) {
    const long long start = now_ns();
    unsigned long long now;
    for (int spins = 1; REGION_NUMBER(now = atomic_load_explicit(&pool.region, memory_order_acquire)) == seen; ++spins) {
      if (atomic_load_explicit(&pool.stop, memory_order_relaxed)) return NULL;
      pause_briefly();
      if (spins % 64 || now_ns() - start < 50000) continue;
      pthread_mutex_lock(&pool.mutex);
      atomic_fetch_add(&pool.sleepers, 1);
      while (!atomic_load(&pool.stop) && REGION_NUMBER(atomic_load(&pool.region)) == seen)
        pthread_cond_wait(&pool.wake, &pool.mutex);
      atomic_fetch_sub(&pool.sleepers, 1);
      pthread_mutex_unlock(&pool.mutex);
    }
    seen = REGION_NUMBER(now);
    while ((now & kOpen) && REGION_NUMBER(now) == seen && worker < atomic_load(&pool.limit))
      if (atomic_compare_exchange_weak_explicit(&pool.region, &now, now + kOne, memory_order_acq_rel,
                                                memory_order_acquire)) {
        take_tasks(worker);
        atomic_fetch_sub_explicit(&pool.region, kOne, memory_order_acq_rel);
        break;
      }
  }
}

static void run_tasks(int64_t tasks, int threads, Task task, void* context) {
  if (tasks <= 1 || threads <= 1 || atomic_exchange(&pool.busy, 1)) {
    for (int64_t i = 0; i < tasks; ++i) task(context, i, 0);
    return;
  }
  for (; pool.threads < threads - 1; ++pool.threads)
    if (pthread_create(&pool.thread[pool.threads], NULL, work, (void*)(intptr_t)(pool.threads + 1))) break;
  pool.task = task;
  pool.context = context;
  pool.tasks = tasks;
  atomic_store(&pool.limit, threads);
  atomic_store_explicit(&pool.next, 0, memory_order_relaxed);
  atomic_store(&pool.region, (REGION_NUMBER(atomic_load(&pool.region)) + 1) << 16 | kOpen);
  if (atomic_load(&pool.sleepers) > 0) {
    pthread_mutex_lock(&pool.mutex);
    pthread_mutex_unlock(&pool.mutex);
    pthread_cond_broadcast(&pool.wake);
  }
  take_tasks(0);
  atomic_fetch_and(&pool.region, ~(unsigned long long)kOpen);
  while (atomic_load_explicit(&pool.region, memory_order_acquire) & kInside) pause_briefly();
  atomic_store(&pool.busy, 0);
}

/* ---- memory of calls: kept for the next one */

typedef struct Memory {
  struct Memory* next;
  void* workspace;
  char* scratch;
  int workers; /* that the scratch is for */
} Memory;

static pthread_mutex_t memory_mutex = PTHREAD_MUTEX_INITIALIZER;
static Memory* free_memory;
static void** big_constants; /* copies on huge pages: constants, then packed; made with the first call */
static int64_t big_constants_count;

static void drop(Memory* m) {
  free(m->workspace);
  free(m->scratch);
  free(m);
}

static Memory* take_call_memory(const CleaveAotProgram* p, int workers) {
  pthread_mutex_lock(&memory_mutex);
  Memory* m = free_memory;
  if (m) free_memory = m->next;
  pthread_mutex_unlock(&memory_mutex);
  if (!m) {
    m = calloc(1, sizeof *m);
    if (!m) return NULL;
  }
  if (!m->workspace && p->workspace_bytes > 0) m->workspace = take_memory((size_t)p->workspace_bytes);
  if (m->workers < workers && p->scratch_bytes > 0) {
    free(m->scratch);
    m->scratch = take_memory(round_up((size_t)p->scratch_bytes, 4096) * (size_t)workers);
    m->workers = workers;
  }
  if ((p->workspace_bytes > 0 && !m->workspace) || (p->scratch_bytes > 0 && !m->scratch)) {
    drop(m);
    return NULL;
  }
  return m;
}

static void give_back(Memory* m) {
  pthread_mutex_lock(&memory_mutex);
  m->next = free_memory;
  free_memory = m;
  pthread_mutex_unlock(&memory_mutex);
}

/* Files are mapped in small pages; what is streamed from memory is read faster from huge ones. */
static const void* on_huge_pages(const void* data, int64_t bytes) {
  if (!data || bytes < (int64_t)(2 * HUGE_PAGE)) return NULL;
  void* p = take_memory((size_t)bytes);
  if (p) memcpy(p, data, (size_t)bytes);
  return p;
}

static void* const* constants_of(const CleaveAotProgram* p) {
  pthread_mutex_lock(&memory_mutex);
  if (!big_constants) {
    void** copies = calloc((size_t)p->constants + 1, sizeof *copies);
    if (copies) {
      for (int64_t i = 0; i < p->constants; ++i) copies[i] = (void*)on_huge_pages(p->constant[i], p->constant_bytes[i]);
      copies[p->constants] = (void*)on_huge_pages(p->packed, p->packed_bytes);
      big_constants = copies;
      big_constants_count = p->constants + 1;
    }
  }
  void** const out = big_constants;
  pthread_mutex_unlock(&memory_mutex);
  return out;
}

/* ---- calls */

typedef struct Region {
  const CleaveCall* call;
  CleaveKernel kernel;
  char* scratch;
  size_t scratch_stride;
  int keep_denormals;
} Region;

static void one_task(void* context, int64_t index, int worker) {
  const Region* r = context;
  const unsigned long long mode = set_mode(r->keep_denormals);
  r->kernel(r->call, index, r->scratch ? r->scratch + r->scratch_stride * (size_t)worker : NULL);
  restore_mode(mode);
}

static int check(const CleaveAotArgument* a, int64_t n, const void* const* given) {
  for (int64_t i = 0; i < n; ++i)
    if (a[i].bytes > 0 && (!given || !given[i] || (uintptr_t)given[i] % (uintptr_t)a[i].element_bytes)) return 0;
  return 1;
}

int cleave_aot_run(const CleaveAotProgram* p, const void* const* inputs, const double* scalars, void* const* outputs,
                   const CleaveAotOptions* options) {
  if (!cpu_supported(p->features)) return CLEAVE_AOT_UNSUPPORTED_CPU;
  if (!check(p->input, p->inputs, inputs) || !check(p->output, p->outputs, (const void* const*)outputs))
    return CLEAVE_AOT_BAD_ARGUMENT;
  const int host = options && options->parallel_for;
  int threads = options ? options->threads : 0;
  if (host) threads = options->workers;
  if (threads < 0 || (host && threads < 1)) return CLEAVE_AOT_BAD_ARGUMENT;
  if (threads == 0) threads = cleave_aot_set_threads(-1);
  if (threads > MAX_THREADS && !host) threads = MAX_THREADS;

  Memory* memory = take_call_memory(p, threads);
  void* const* copies = constants_of(p);
  const int64_t count = p->inputs + p->constants + p->outputs + 1;
  CleaveTensor on_stack[32];
  CleaveTensor* tensors = count <= 32 ? on_stack : malloc((size_t)count * sizeof *tensors);
  if (!memory || !copies || !tensors) {
    if (memory) give_back(memory);
    if (tensors != on_stack) free(tensors);
    return CLEAVE_AOT_NO_MEMORY;
  }
  CleaveTensor* t = tensors;
  for (int64_t i = 0; i < p->inputs; ++i) *t++ = (CleaveTensor){p->input[i].bytes ? (void*)inputs[i] : NULL, NULL};
  for (int64_t i = 0; i < p->constants; ++i)
    *t++ = (CleaveTensor){copies[i] ? copies[i] : (void*)p->constant[i], NULL};
  for (int64_t i = 0; i < p->outputs; ++i) *t++ = (CleaveTensor){p->output[i].bytes ? outputs[i] : NULL, NULL};
  *t = (CleaveTensor){copies[p->constants] ? copies[p->constants] : (void*)p->packed, NULL};

  const CleaveCall call = {tensors, NULL, scalars, memory->workspace};
  Region r = {&call, NULL, memory->scratch, round_up((size_t)p->scratch_bytes, 4096), options && options->keep_denormals};
  for (int64_t i = 0; i < p->launches; ++i) {
    r.kernel = p->launch[i].kernel;
    if (host)
      options->parallel_for(options->host, p->launch[i].tasks, one_task, &r);
    else
      run_tasks(p->launch[i].tasks, threads, one_task, &r);
  }
  give_back(memory);
  if (tensors != on_stack) free(tensors);
  return CLEAVE_AOT_OK;
}

/* 0: every core that the process may use; a negative number only asks. Returns what is set. */
int cleave_aot_set_threads(int threads) {
  int n = atomic_load(&default_threads);
  if (threads < 0 && n > 0) return n;
  n = threads > 0 ? (threads > MAX_THREADS ? MAX_THREADS : threads) : usable_cores();
  atomic_store(&default_threads, n);
  return n;
}

void cleave_aot_release(void) {
  while (atomic_exchange(&pool.busy, 1)) pause_briefly();
  pthread_mutex_lock(&pool.mutex);
  atomic_store(&pool.stop, 1);
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.mutex);
  for (int i = 0; i < pool.threads; ++i) pthread_join(pool.thread[i], NULL);
  pool.threads = 0;
  atomic_store(&pool.stop, 0);
  atomic_store(&pool.busy, 0);

  pthread_mutex_lock(&memory_mutex);
  while (free_memory) {
    Memory* next = free_memory->next;
    drop(free_memory);
    free_memory = next;
  }
  for (int64_t i = 0; i < big_constants_count; ++i) free(big_constants[i]);
  free(big_constants);
  big_constants = NULL;
  big_constants_count = 0;
  pthread_mutex_unlock(&memory_mutex);
}

__attribute__((destructor)) static void unload(void) { cleave_aot_release(); }

const char* cleave_aot_error(int status) {
  switch (status) {
    case CLEAVE_AOT_OK: return "no error";
    case CLEAVE_AOT_BAD_ARGUMENT: return "a pointer is null or not aligned to its elements, or an option is out of range";
    case CLEAVE_AOT_NO_MEMORY: return "not enough memory";
    case CLEAVE_AOT_UNSUPPORTED_CPU: return "this processor lacks instructions that the code was compiled for";
    default: return "unknown status";
  }
}
